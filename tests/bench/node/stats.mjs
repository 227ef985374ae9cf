/** Medians, and the format of figures. */

export function percentile(values, percent, round = Math.floor) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[round(((sorted.length - 1) * percent) / 100)] ?? Number.NaN;
}

export function median(values) {
  return percentile(values, 50);
}

/** Returns the ratios of the rounds: sides take turns, so each round is compared with its neighbor. */
export function ratios(own, others) {
  return own.map((value, round) => value / others[round]);
}

/** Shows the median and the middle half: `2.10 (1.95–2.31)`. */
export function spread(values, digits = 2) {
  const [low, middle, high] = [percentile(values, 25), median(values), percentile(values, 75, Math.ceil)];
  return `${middle.toFixed(digits)} (${low.toFixed(digits)}–${high.toFixed(digits)})`;
}

/** Prints rows in aligned columns; the first column is text. */
export function table(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  for (const row of rows) {
    const cells = row.map((cell, column) =>
      column === 0 ? cell.padEnd(widths[column]) : cell.padStart(widths[column]),
    );
    console.log(`  ${cells.join("  ").trimEnd()}`);
  }
}

/** Shows the progress to a waiting user; not a part of the report. */
export function progress(text) {
  if (process.stderr.isTTY) {
    process.stderr.write(`\r\x1b[K${text}`);
  } else if (text !== "") {
    console.error(text);
  }
}

/** Returns the microseconds of processor time that this process has used. */
export function processorTime() {
  const { user, system } = process.cpuUsage();
  return user + system;
}
