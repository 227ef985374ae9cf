// The charts of all locks, drawn as SVG.

/** Fits a chart to its size on the screen, which it returns. */
function sized(svg) {
  const { width, height } = svg.getBoundingClientRect();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return [width, height];
}

function drawRates() {
  const svg = byId("rates");
  const [width, height] = sized(svg);
  if (width === 0) return;
  const length = Number(byId("ratesSpan").value) * 1000;
  const points = rates(length);
  const foot = height - 16;
  const most = niceMost(Math.max(1, ...points.map((point) => point.acquired), ...points.map((point) => point.losses)));
  const end = now();
  const x = (at) => width - ((end - at) / length) * width;
  const y = (value) => foot - (value / most) * (foot - 14);
  const parts = [
    draw("line", { class: "grid", x1: 0, x2: width, y1: foot, y2: foot }),
    draw("line", { class: "grid", x1: 0, x2: width, y1: y(most), y2: y(most) }),
    draw("text", { x: 0, y: y(most) - 3 }, number(most)),
    draw("text", { x: 0, y: height - 3 }, `${length / 60_000} min ago`),
    draw("text", { x: width, y: height - 3, "text-anchor": "end" }, "now"),
  ];
  for (const [key, mark] of [["acquired", "acquired"], ["handoffs", "handoff"], ["losses", "loss"]]) {
    if (points.length < 2) break;
    const path = points.map((point) => `${x(point.at).toFixed(1)},${y(point[key]).toFixed(1)}`);
    const ends = [x(points[0].at), x(points.at(-1).at)].map((end) => `${end.toFixed(1)},${foot}`);
    parts.push(draw("polygon", { class: `area ${mark}`, points: [ends[0], ...path, ends[1]].join(" ") }));
    parts.push(draw("polyline", { class: `stroke ${mark}`, points: path.join(" ") }));
  }
  svg.replaceChildren(...parts);
  const recent = rates(120_000).slice(-5);
  const mean = (key) => recent.reduce((sum, point) => sum + point[key], 0) / Math.max(recent.length, 1);
  say(byId("rateAcquired"), short(mean("acquired")));
  say(byId("rateHandoffs"), short(mean("handoffs")));
  say(byId("rateLosses"), short(mean("losses")));
}

const short = (value) => (value >= 100 ? number(Math.round(value)) : String(Math.round(value * 10) / 10));

/** The next 1, 2 or 5 times a power of ten. */
function niceMost(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((most) => most >= value);
}

function drawHistogram(sum) {
  const svg = byId("histogram");
  const [width, height] = sized(svg);
  if (width === 0) return;
  const pairs = sum.counts.waits.buckets.map((count, at) => [count, sum.line.buckets[at]]);
  const most = Math.max(1, ...pairs.flat());
  const foot = height - 16;
  const step = width / pairs.length;
  const bar = Math.min(step / 2 - 4, 34);
  const parts = [draw("line", { class: "grid", x1: 0, x2: width, y1: foot, y2: foot })];
  pairs.forEach(([done, still], at) => {
    const middle = step * (at + 0.5);
    for (const [count, kind, x] of [[done, "block handoff", middle - bar - 1], [still, "ghost line", middle + 1]]) {
      const tall = count === 0 ? 0 : Math.max(2, (count / most) * (foot - 16));
      parts.push(draw("rect", { class: kind, x, y: foot - tall, width: bar, height: tall, rx: 1 }));
      if (count > 0) {
        const place = { x: x + bar / 2, y: foot - tall - 3, "text-anchor": "middle" };
        parts.push(draw("text", place, count > 9999 ? `${Math.round(count / 1000)}k` : String(count)));
      }
    }
    parts.push(draw("text", { x: middle, y: height - 3, "text-anchor": "middle" }, BUCKETS[at]));
  });
  svg.replaceChildren(...parts);
  const all = (buckets) => number(buckets.reduce((a, b) => a + b, 0));
  say(byId("waits"), all(sum.counts.waits.buckets));
  say(byId("waitsNow"), all(sum.line.buckets));
}

function showSum() {
  const { sum } = model;
  if (!sum) return;
  say(byId("held"), number(sum.held));
  say(byId("heldNote"), `${number(sum.counts.acquired)} acquisitions seen`);
  say(byId("waiting"), number(sum.waiting));
  say(byId("waitingNote"), `${number(sum.counts.handoffs)} got their lock`);
  say(byId("longest"), sum.longest ? number(sum.longest[1]) : "0");
  say(byId("longestName"), sum.longest ? plain(sum.longest[0]) : "nobody waits");
  say(byId("oldest"), sum.oldest ? span(sum.oldest[1]) : "–");
  say(byId("oldestName"), sum.oldest ? plain(sum.oldest[0]) : "nothing is held");
  drawRates();
  drawHistogram(sum);
}
