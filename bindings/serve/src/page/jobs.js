// The table of jobs.

/** The most jobs that are shown at once. The search finds the others. */
const MOST_JOBS = 500;
const YEAR = 366 * 86_400_000;

/** Shows a tick as a time if it can be one: schedules number their ticks by the milliseconds since 1970. */
function tickText(tick) {
  if (Math.abs(tick - Date.now()) > YEAR) return String(tick);
  const date = new Date(tick);
  const local = new Date(tick - date.getTimezoneOffset() * 60_000).toISOString();
  return local.slice(0, tick % 1000 ? 23 : 19).replace("T", " ");
}

const jobs = () => [...model.rows.values()].filter((row) => row.job);

/** Returns the jobs that match the search, by name. */
function shownJobs() {
  const query = byId("searchJobs").value.toLowerCase();
  const has = ({ key, holder, job }) =>
    [key, holder?.owner.toLowerCase(), job.completed?.by.toLowerCase()].some((text) => text?.includes(query));
  return jobs().filter(has).sort((a, b) => compare(a.key, b.key)).slice(0, MOST_JOBS);
}

function showJobs() {
  const shown = shownJobs();
  const all = jobs().length;
  const body = byId("jobRows");
  while (body.children.length > shown.length) body.lastChild.remove();
  while (body.children.length < shown.length) body.append(newJob());
  shown.forEach((row, at) => fillJob(body.children[at], row));
  const count = `${number(all)} ${all === 1 ? "job" : "jobs"}`;
  say(byId("countJobs"), shown.length === all ? count : `${number(shown.length)} of ${count}`);
  const empty = byId("noJobs");
  empty.hidden = shown.length > 0 || !model.ready;
  say(empty, all ? "No job has that in its name or its runner's." : "No turn of a job was seen yet.");
}

function newJob() {
  const row = make("tr");
  for (const kind of ["name", "now", "tick", "by", "took", "ago"]) row.append(make(kind === "name" ? "th" : "td", kind));
  row.firstChild.setAttribute("scope", "row");
  row.firstChild.append(make("a"));
  row.firstChild.firstChild.append(make("bdi"));
  return row;
}

function fillJob(element, row) {
  const [name, now_, tick, by, took, ago] = element.children;
  const { completed } = row.job;
  const to = linkTo(row.name);
  if (name.firstChild.getAttribute("href") !== to) name.firstChild.href = to;
  say(name.firstChild.firstChild, row.shown);
  const [text, kind] = turnOf(row);
  say(now_, text);
  if (now_.className !== `now ${kind}`) now_.className = `now ${kind}`;
  say(tick, completed ? tickText(completed.tick) : "none");
  tick.title = completed ? `tick ${completed.tick}, token ${completed.token}` : "";
  say(by, completed?.by ?? "");
  say(took, completed?.took === undefined ? "" : span(completed.took));
  say(ago, completed ? `${span(now() - completed.at)} ago` : "");
}

/** Says who runs which tick now, or which tick is unfinished. */
function turnOf({ holder, job, trouble, waiting }) {
  if (trouble) return [trouble, "loss"];
  const queued = waiting > 0 ? `, ${number(waiting)} in line` : "";
  if (holder) {
    const since = holder.since === undefined ? "" : ` for ${span(now() - holder.since)}`;
    return [`${holder.owner} runs ${tickText(holder.tick ?? job.begun)}${since}${queued}`, "running"];
  }
  if (job.begun === null) return [`idle${queued}`, "idle"];
  return [`${tickText(job.begun)} is unfinished: its runner was lost${queued}`, "loss"];
}
