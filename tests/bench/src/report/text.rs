//! The report as Markdown, and the part of it that the book shows.

use std::fmt::Write;

use super::measure::{CALLERS, CONFIGURATIONS, configuration};
use super::results::{Handoff, Measured, Results};
use super::{FIGURES, Plan, plot};
use crate::latency;
use crate::stats::{callers, median, number, spread};

/// Returns what the book shows: how many times as fast as each peer.
pub(super) fn page(plan: &Plan, results: &Results) -> String {
    let mut text = format!(
        "Each figure is Leasehold's acquisitions per second divided by the peer's: the median of the rounds of one \
         run, with the least and the greatest in brackets. All sides had warmed up. {}\n\n\
         **Bold: the peer is ahead.** †: the peer lets the task that has just released a lock take it again, so others \
         starve. One task had less than a tenth of another's turns. Leasehold serves waiters in order. Peers are \
         compared with Leasehold in Rust, those in Node with Leasehold in Node on ioredis.\n\n",
        plan.conditions
    );
    let shapes = CONFIGURATIONS.map(configuration);
    let mut head = vec![String::new()];
    head.extend(CALLERS.map(callers));
    head.extend(shapes.iter().map(|shape| format!("one name, {shape}")));
    let peers = results.sides.iter().filter(|side| !side.is_own());
    let rows = peers.map(|side| {
        let mut row = vec![title(side)];
        row.extend(CALLERS.map(|callers| ahead(&results.pairs_ratios(side, callers))));
        row.extend(shapes.iter().map(|shape| {
            let handoff = side.handoff.get(shape);
            let mark = handoff.is_some_and(Handoff::starves).then_some(" †");
            ahead(&handoff.map(Handoff::ratios).unwrap_or_default()) + mark.unwrap_or_default()
        }));
        row
    });
    table(&mut text, &head, rows);
    skipped(&mut text, plan, results);
    let _ = write!(
        text,
        "\n![acquire and release by 64 callers]({FIGURES}{})\n",
        plot::MAIN
    );
    text
}

/// Returns the whole report.
pub(super) fn report(plan: &Plan, results: &Results) -> String {
    let mut text = format!(
        "# Leasehold beside its peers\n\n{}\n\nEach side is on a redis-server of its own. Figures are \
         medians of {} rounds in which the sides take turns ({} of handoffs); ratios are the medians of the rounds' \
         ratios, and above 1 Leasehold is ahead.\n",
        plan.conditions, plan.rounds, plan.handoff_rounds
    );
    skipped(&mut text, plan, results);
    pairs(&mut text, results);
    if !results.latency.is_empty() {
        let _ = write!(
            text,
            "\n## Latency at fixed rates\n\n{}",
            latency::markdown(&results.latency, "")
        );
    }
    handoffs(&mut text, results);
    held(&mut text, plan, results);
    loss(&mut text, results);
    if !plan.sizes.is_empty() {
        text.push_str(
            "\n## Sizes\n\nBytes gzipped, bundled and minified without the client of Redis.\n\n",
        );
        let rows = plan
            .sizes
            .iter()
            .map(|(name, size)| vec![name.clone(), size.to_string()]);
        table(&mut text, &[String::new(), "bytes".to_owned()], rows);
    }
    if let Some(guards) = &plan.guards {
        let _ = write!(text, "\n## Guards\n\n```text\n{}\n```\n", guards.trim_end());
    }
    text
}

fn pairs(text: &mut String, results: &Results) {
    text.push_str(
        "\n## Acquire and release, a name for each caller\n\nThousand pairs a second (ratio).\n\n",
    );
    let mut head = vec![String::new()];
    head.extend(CALLERS.map(callers));
    let measured = results.sides.iter().filter(|side| !side.pairs.is_empty());
    let rows = measured.map(|side| {
        let mut row = vec![title(side)];
        row.extend(CALLERS.map(|callers| {
            let ratios = results.pairs_ratios(side, callers);
            with_ratio(side.thousand_pairs(callers), &ratios, side)
        }));
        row
    });
    table(text, &head, rows);
    let _ = write!(
        text,
        "\n![64 callers]({})\n\n![one caller](pairs-1.svg)\n",
        plot::MAIN
    );
}

fn handoffs(text: &mut String, results: &Results) {
    text.push_str("\n## One name that all want\n\n");
    text.push_str("Fair is the tenures of the task that had the fewest, per cent of those of the one with the most.\n");
    for shape in CONFIGURATIONS.map(configuration) {
        let _ = write!(text, "\n### {shape}\n\n");
        let head = ["", "tenures a second (ratio)", "commands for each", "fair"].map(str::to_owned);
        let measured = results
            .sides
            .iter()
            .filter_map(|side| Some((side, side.handoff.get(&shape)?)));
        let rows = measured.map(|(side, handoff)| {
            vec![
                title(side),
                with_ratio(median(&handoff.per_second), &handoff.ratios(), side),
                number(median(&handoff.commands)),
                number(median(&handoff.least_to_most) * 100.0),
            ]
        });
        table(text, &head, rows);
    }
    text.push_str("\n![16 tasks](handoff-16.svg)\n");
}

fn held(text: &mut String, plan: &Plan, results: &Results) {
    let measured: Vec<_> = results
        .sides
        .iter()
        .filter_map(|side| Some((side, side.held.as_ref()?)))
        .collect();
    let Some((_, first)) = measured.first() else {
        return;
    };
    let (leases, seconds) = (plan.leases, first.seconds);
    let _ = write!(
        text,
        "\n## {leases} leases, held for {seconds:.0} s\n\nPer cent of a core.\n\n"
    );
    let head = ["", "commands", "client", "server"].map(str::to_owned);
    let rows = measured.iter().map(|(side, held)| {
        let numbers = [held.client_cpu, held.server_cpu].map(number);
        let mut row = vec![title(side), format!("{:.0}", held.commands)];
        row.extend(numbers);
        row
    });
    table(text, &head, rows);
    text.push_str("\n![held leases](held.svg)\n");
}

fn loss(text: &mut String, results: &Results) {
    text.push_str("\n## From a DEL of the key until its holder hears of it\n\n");
    let rows = results
        .sides
        .iter()
        .filter(|side| !side.handoff.is_empty())
        .map(|side| {
            let told = match &side.loss {
                None if side.failed => "-".to_owned(),
                None => "it does not tell".to_owned(),
                Some(loss) => match loss.millis {
                    Some(millis) => format!("{} ms", number(millis)),
                    None => format!("not in {:.0} s", loss.waited_millis / 1e3),
                },
            };
            vec![title(side), told]
        });
    table(text, &[String::new(), "after".to_owned()], rows);
    text.push_str("\n![loss](loss.svg)\n");
}

fn title(side: &Measured) -> String {
    format!("{} ({}; {})", side.name, side.language, side.version)
}

fn skipped(text: &mut String, plan: &Plan, results: &Results) {
    for skipped in &plan.skipped {
        let _ = write!(text, "\n**Not measured:** {skipped}.\n");
    }
    let uneven = results
        .sides
        .iter()
        .filter(|side| !side.unsettled.is_empty());
    let uneven = uneven.map(|side| format!("{}, with {}", side.name, side.unsettled.join(", ")));
    let uneven: Vec<_> = uneven.collect();
    if !uneven.is_empty() {
        let uneven = uneven.join("; ");
        let _ = write!(
            text,
            "\n**Still uneven after the longest warm-up:** {uneven}.\n"
        );
    }
}

fn with_ratio(value: f64, ratios: &[f64], side: &Measured) -> String {
    if side.is_base() || ratios.is_empty() {
        return number(value);
    }
    format!("{}; {}", number(value), spread(ratios))
}

/// Shows ratios, in bold if the peer is faster.
fn ahead(ratios: &[f64]) -> String {
    if median(ratios) < 1.0 {
        return format!("**{}**", spread(ratios));
    }
    spread(ratios)
}

/// Adds a table; the first column is text.
pub(crate) fn table(text: &mut String, head: &[String], rows: impl Iterator<Item = Vec<String>>) {
    let mut line = |cells: &[String]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(head);
    let mut rule = vec!["---".to_owned()];
    rule.resize(head.len(), "---:".to_owned());
    line(&rule);
    rows.for_each(|row| line(&row));
}
