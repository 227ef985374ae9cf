//! The page: one HTML document, made of the files in `page/`.

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The parts of one module, in order.
const SCRIPTS: [&str; 8] = [
    include_str!("page/text.js"),
    include_str!("page/model.js"),
    include_str!("page/charts.js"),
    include_str!("page/table.js"),
    include_str!("page/jobs.js"),
    include_str!("page/lock.js"),
    include_str!("page/feed.js"),
    include_str!("page/main.js"),
];

/// Returns the document. Its scripts and styles carry this nonce; no others run.
pub(crate) fn page(nonce: &str) -> String {
    let script = SCRIPTS.concat();
    HTML.replace("{{nonce}}", nonce)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = page("abc");
        assert!(!page.contains("{{"), "all is filled in");
        assert_eq!(page.matches("nonce=\"abc\"").count(), 2);
        // The name of SVG is no address.
        let others = page.replace("http://www.w3.org/2000/svg", "");
        for part in [
            "http://",
            "https://",
            "@import",
            "url(",
            "import(",
            "innerHTML",
            "eval(",
        ] {
            assert!(!others.contains(part), "{part}");
        }
        let scripts = page.matches("<script").count();
        assert_eq!((scripts, page.matches("</script").count()), (1, 1));
    }
}
