//! The Rust programs of the book's pages and of the README, as doctests: `cargo test --doc -p leasehold-book`.

#[cfg(doctest)]
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// All metrics as Prometheus reads them: those of a program, and those of the page.
    async fn metrics() -> String {
        let counted = leasehold::Stats::default().to_prometheus(&[]);
        let mut options = leasehold_serve::Options::demo();
        options.listen.set_port(0);
        let serving = leasehold_serve::serve(options).await.expect("it serves");
        let url = serving.url();
        let host = url
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned();
        let _page = tokio::spawn(serving.run_until(std::future::pending::<()>()));
        let mut stream = TcpStream::connect(&host).await.expect("it listens");
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        let mut seen = String::new();
        stream.read_to_string(&mut seen).await.expect("it answers");
        counted.expect("there are no labels") + &seen
    }

    /// Catches a panel, an alert or a row of the book's table with a metric that does not exist.
    #[tokio::test]
    async fn each_metric_of_the_dashboard_and_the_book_exists() {
        let metrics = metrics().await;
        let exists = |name: &str| {
            metrics.lines().any(|line| {
                let rest = line
                    .strip_prefix("# TYPE ")
                    .unwrap_or(line)
                    .strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
        };
        assert!(!exists("leasehold_hel") && !exists("leasehold_waiting_seconds_buckets"));
        for file in ["../grafana.json", "src/metrics.md"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let text = fs::read_to_string(path).expect("it can be read");
            let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
            let names: Vec<_> = words
                .filter(|word| word.starts_with("leasehold_"))
                .collect();
            assert!(names.len() > 20, "{file}: {names:?}");
            let missing: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
            assert_eq!(missing, [""; 0], "{file}");
        }
    }
}
