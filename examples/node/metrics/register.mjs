// Hands what a locker counts to prom-client. This file is all that a program needs of the example.

/** The fields of `locker.stats()` and their names in Prometheus, the same as in Rust's `Stats::to_prometheus`. */
const METRICS = [
  ["held", "gauge", "leasehold_held", "Tenures that are held."],
  ["waiting", "gauge", "leasehold_waiting", "Acquisitions in progress."],
  ["acquired", "counter", "leasehold_acquired_total", "Tenures that began."],
  ["busy", "counter", "leasehold_busy_total", "Calls that did not get the lock because another holder has it."],
  ["failed", "counter", "leasehold_failed_total", "Calls to acquire that failed."],
  ["released", "counter", "leasehold_released_total", "Tenures that were released."],
  ["lost", "counter", "leasehold_lost_total", "Tenures that were lost."],
  ["renewals", "counter", "leasehold_renewals_total", "Renewals that extended a lease."],
  ["renewalFailures", "counter", "leasehold_renewal_failures_total", "Renewals that failed, and warnings that the store cannot be reached."],
  ["ticksCompleted", "counter", "leasehold_ticks_completed_total", "Turns of jobs that completed their tick."],
  ["ticksRepeated", "counter", "leasehold_ticks_repeated_total", "Turns whose tick an earlier turn had begun and not completed."],
  ["ticksMissed", "counter", "leasehold_ticks_missed_total", "Ticks that nobody completed before the turns."],
  ["scriptCalls", "counter", "leasehold_script_calls_total", "Script calls."],
  ["operations", "counter", "leasehold_operations_total", "Operations in script calls."],
  ["timeouts", "counter", "leasehold_timeouts_total", "Script calls without a reply in time."],
  ["pushes", "counter", "leasehold_pushes_total", "Messages on the client's channel."],
  ["waitingTimes", "histogram", "leasehold_waiting_seconds", "How long calls waited for the lock that they got."],
  ["holdingTimes", "histogram", "leasehold_holding_seconds", "How long tenures lasted."],
  ["roundTrips", "histogram", "leasehold_round_trip_seconds", "How long script calls took."],
];

/**
 * Registers all of them, with these labels. The registry asks for the numbers when it is scraped.
 * prom-client's own counters and histograms count by themselves, so that numbers which are counted already
 * need metrics of their own: a name, and what `get` returns.
 */
export function register(registry, locker, labels = {}) {
  for (const [field, type, name, help] of METRICS) {
    const get = async () => ({ name, type, help, aggregator: "sum", values: values(name, locker.stats()[field], labels) });
    registry.registerMetric({ name, type, get });
  }
}

function values(name, counted, labels) {
  if (typeof counted === "number") {
    return [{ value: counted, labels }];
  }
  if (counted.buckets === undefined) {
    return Object.entries(counted).map(([reason, value]) => ({ value, labels: { reason, ...labels } }));
  }
  // Prometheus counts in each bucket what is in the ones before, too; and in seconds.
  let count = 0;
  const buckets = counted.buckets.map((more, at) => {
    count += more;
    const le = at < counted.bounds.length ? counted.bounds[at] / 1_000 : "+Inf";
    return { metricName: `${name}_bucket`, value: count, labels: { le, ...labels } };
  });
  const sum = { metricName: `${name}_sum`, value: counted.sum / 1_000, labels };
  return [...buckets, sum, { metricName: `${name}_count`, value: count, labels }];
}
