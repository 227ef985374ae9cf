//! The links and headings of Markdown.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A Markdown file: the targets of its links and images, and the anchors that links to it may name.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) links: Vec<String>,
    pub(crate) anchors: BTreeSet<String>,
}

impl Page {
    pub(crate) fn new(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
        let definitions = parser.reference_definitions().iter();
        let defined: Vec<_> = definitions.map(|(_, link)| link.dest.to_string()).collect();
        for event in parser {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.add_anchor(&heading.take().unwrap_or_default());
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Html(html) | Event::InlineHtml(html) => page.add_html(&html),
                _ => {}
            }
        }
        // Definitions that nothing refers to are links, too.
        for link in defined {
            if !page.links.contains(&link) {
                page.links.push(link);
            }
        }
        page
    }

    fn add_html(&mut self, html: &str) {
        for start in ["src=\"", "href=\""] {
            let rests = html.split(start).skip(1);
            let links = rests.filter_map(|rest| rest.split('"').next());
            self.links.extend(links.map(str::to_owned));
        }
    }

    /// Adds the anchor of a heading, as mdBook and the usual hosts of repositories make it.
    fn add_anchor(&mut self, heading: &str) {
        let kept = |&c: &char| c.is_alphanumeric() || "_- ".contains(c);
        let anchor: String = heading.to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.trim().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut anchors = std::iter::once(anchor.clone()).chain(numbered);
        self.anchors
            .extend(anchors.find(|anchor| !self.anchors.contains(anchor)));
    }
}
/// Puts a text into its place on a page: between the comments `NAME: begin` and `NAME: end`.
pub(crate) fn fill(page: &mut String, name: &str, text: &str) -> Result<()> {
    let (begin, end) = (
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let at = page.find(&begin).zip(page.find(&end));
    let (from, to) = at.with_context(|| format!("the page has no place for {name}"))?;
    page.replace_range(from + begin.len()..to, text);
    Ok(())
}
