/** Medians, and how figures are shown. */

export function percentile(values, percent, round = Math.floor) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[round(((sorted.length - 1) * percent) / 100)] ?? Number.NaN;
}

export function median(values) {
  return percentile(values, 50);
}

/** Of each round's ratio: rounds take turns, so each is compared with its neighbour. */
export function ratios(own, others) {
  return own.map((value, round) => value / others[round]);
}

/** `2.10 (1.95–2.31)`: the median, and where the middle half lies. */
export function spread(values, digits = 2) {
  const [low, middle, high] = [percentile(values, 25), median(values), percentile(values, 75, Math.ceil)];
  return `${middle.toFixed(digits)} (${low.toFixed(digits)}–${high.toFixed(digits)})`;
}

/** Prints rows in columns that are as wide as they have to be; the first one is of words. */
export function table(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  for (const row of rows) {
    const cells = row.map((cell, column) =>
      column === 0 ? cell.padEnd(widths[column]) : cell.padStart(widths[column]),
    );
    console.log(`  ${cells.join("  ").trimEnd()}`);
  }
}

/** What goes on, for people who wait: not a part of the report. */
export function progress(text) {
  if (process.stderr.isTTY) {
    process.stderr.write(`\r\x1b[K${text}`);
  } else if (text !== "") {
    console.error(text);
  }
}

/** Microseconds of processor time that this process has used. */
export function processorTime() {
  const { user, system } = process.cpuUsage();
  return user + system;
}
