//! Numbered lists (injected faults, complaints) and the tests that name their numbers.
//!
//! A list is a file of lines `NUMBER: TEXT`. A test says `// Word: 3, 4` or `# Word: 3, 4` in front
//! of it. A number without a test must be in a second file, with the reason; so is what the tests of
//! a number leave out, as `3 partly: what`.

use std::collections::BTreeMap;
use std::fs;

use crate::Failure;
use crate::files::{TextFile, read_all};
use crate::promises::test_name;
use crate::run::root;

const PARTLY: &str = " partly:";

/// Where reports are: the sign before the number, and the address before it.
const TRACKERS: &[(&str, &str)] = &[
    (
        "T#",
        "https://github.com/databricks/iceberg-kafka-connect/issues/",
    ),
    ("#", "https://github.com/apache/iceberg/issues/"),
];

/// A list, and the document that has its table.
pub(crate) struct List {
    /// What a test says before the numbers, such as `Injection`.
    pub(crate) word: &'static str,
    /// The file with the numbers.
    pub(crate) list: &'static str,
    /// The file with those that have no test.
    pub(crate) elsewhere: &'static str,
    /// The document.
    pub(crate) doc: &'static str,
    /// The lines between which the table stands.
    pub(crate) markers: (&'static str, &'static str),
}

/// A test that names a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) path: String,
    pub(crate) test: String,
}

impl Cover {
    /// Returns the test as a link from a document in `docs/`.
    pub(crate) fn link(&self) -> String {
        format!("[`{}`](../{})", self.test, self.path)
    }
}

/// All that a table is made of.
pub(crate) struct Known {
    pub(crate) items: BTreeMap<u32, String>,
    pub(crate) elsewhere: BTreeMap<u32, String>,
    /// What the tests of a number leave out.
    pub(crate) left_out: BTreeMap<u32, String>,
    pub(crate) covers: BTreeMap<u32, Vec<Cover>>,
}

impl Known {
    /// Returns the tests that name `number`.
    pub(crate) fn tests(&self, number: u32) -> &[Cover] {
        self.covers.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Returns what stands for the tests of `number` in the table: their links, or why there is
    /// none, and what they leave out.
    pub(crate) fn covered_by(&self, number: u32) -> String {
        let links: Vec<String> = self.tests(number).iter().map(Cover::link).collect();
        let by = match self.elsewhere.get(&number) {
            Some(reason) => reason.clone(),
            None => links.join(", "),
        };
        match self.left_out.get(&number) {
            Some(what) => format!("{by}; not: {what}"),
            None => by,
        }
    }
}

/// Turns `#12` or `T#12` into a link; anything else stays as it is.
fn link(report: &str) -> String {
    for (sign, address) in TRACKERS {
        if let Some(number) = report.strip_prefix(sign)
            && number.parse::<u32>().is_ok()
        {
            return format!("[{report}]({address}{number})");
        }
    }
    report.to_owned()
}

impl List {
    /// Reads the files of the repository and collects what is known.
    pub(crate) fn read(&self) -> Result<Known, Failure> {
        self.known(&read_all()?)
    }

    /// Collects what `files` say about this list.
    pub(crate) fn known(&self, files: &[TextFile]) -> Result<Known, Failure> {
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.text.as_str())
                .ok_or_else(|| format!("{path} is missing"))
        };
        let is_partly = |line: &&str| line.contains(PARTLY);
        let elsewhere = text(self.elsewhere)?.lines();
        let (partly, whole): (Vec<&str>, Vec<&str>) = elsewhere.partition(is_partly);
        Ok(Known {
            items: numbered(self.list, text(self.list)?)?,
            elsewhere: numbered(self.elsewhere, &whole.join("\n"))?,
            left_out: numbered(self.elsewhere, &partly.join("\n").replace(PARTLY, ":"))?,
            covers: self.collect(files)?,
        })
    }

    /// Makes the table of a list whose texts have the three columns `form`, the reports first. `heads` are those of
    /// the table.
    pub(crate) fn reports(
        &self,
        known: &Known,
        heads: [&str; 3],
        form: &str,
    ) -> Result<String, Failure> {
        let [reported, there, here] = heads;
        let mut lines = vec![
            String::new(),
            format!("| # | {reported} | {there} | {here} | shown by |"),
            "|---|---|---|---|---|".to_owned(),
        ];
        for (number, text) in &known.items {
            let columns: Vec<&str> = text.split('|').map(str::trim).collect();
            let [reports, there, here] = columns.as_slice() else {
                return Err(format!("{}: {number} is not `{form}`", self.list));
            };
            let reports: Vec<String> = reports.split(", ").map(link).collect();
            let (reports, by) = (reports.join(", "), known.covered_by(*number));
            lines.push(format!(
                "| {number} | {reports} | {there} | {here} | {by} |"
            ));
        }
        lines.push(String::new());
        Ok(lines.join("\n") + "\n")
    }

    /// Complains about numbers without a test and without a reason, and about those with both.
    pub(crate) fn gaps(&self, known: &Known) -> Vec<String> {
        let (
            List {
                list, elsewhere, ..
            },
            word,
        ) = (self, self.word.to_lowercase());
        let mut complaints = Vec::new();
        for number in known.items.keys() {
            match (
                known.covers.contains_key(number),
                known.elsewhere.contains_key(number),
            ) {
                (false, false) => complaints.push(format!(
                    "{word} {number}: no test names it, and {elsewhere} has no reason"
                )),
                (true, true) => complaints.push(format!(
                    "{word} {number}: a test names it, and {elsewhere} says there is none"
                )),
                _ => {}
            }
        }
        for number in known.left_out.keys() {
            if !known.covers.contains_key(number) {
                complaints.push(format!(
                    "{word} {number}: {elsewhere} says what its test leaves out, and it has none"
                ));
            }
        }
        for number in known.covers.keys().chain(known.elsewhere.keys()) {
            if !known.items.contains_key(number) {
                complaints.push(format!("{word} {number} is not in {list}"));
            }
        }
        complaints
    }

    /// Writes `table` into the document.
    pub(crate) fn write(&self, table: &str) -> Result<(), Failure> {
        let whole = self.replaced(&self.document()?, table)?;
        fs::write(root().join(self.doc), whole)
            .map_err(|error| format!("cannot write {}: {error}", self.doc))
    }

    /// Complains when the document has another table.
    pub(crate) fn stale(&self, table: &str) -> Result<Option<String>, Failure> {
        let document = self.document()?;
        let (doc, task) = (self.doc, self.word.to_lowercase());
        Ok((self.replaced(&document, table)? != document)
            .then(|| format!("{doc}: its table is stale: run ./x {task}s --write and read it")))
    }

    fn document(&self) -> Result<String, Failure> {
        fs::read_to_string(root().join(self.doc))
            .map_err(|error| format!("cannot read {}: {error}", self.doc))
    }

    fn replaced(&self, document: &str, table: &str) -> Result<String, Failure> {
        let (begin, end) = self.markers;
        let missing = || format!("{} lacks the markers `{begin}` and `{end}`", self.doc);
        let (before, rest) = document.split_once(begin).ok_or_else(missing)?;
        let (_, after) = rest.split_once(end).ok_or_else(missing)?;
        Ok(format!("{before}{begin}\n{table}{end}{after}"))
    }

    fn collect(&self, files: &[TextFile]) -> Result<BTreeMap<u32, Vec<Cover>>, Failure> {
        let mut covers: BTreeMap<u32, Vec<Cover>> = BTreeMap::new();
        // This crate names the words without testing anything.
        let files = files.iter().filter(|f| !f.path.starts_with("rust/xtask/"));
        for file in files.filter(|file| file.is_source()) {
            let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
            for (index, line) in lines.iter().enumerate() {
                let Some(numbers) = self.named(line) else {
                    continue;
                };
                let place = format!("{}:{}", file.path, index + 1);
                let word = self.word.to_lowercase();
                let after = lines.get(index + 1..).unwrap_or_default();
                let test = after.iter().find_map(|line| test_name(line));
                let test = test.ok_or_else(|| format!("{place}: no test follows the {word}"))?;
                for number in numbers.split(',') {
                    let number = number.trim().parse().map_err(|_| {
                        format!("{place}: `{number}` is not the number of a {word}")
                    })?;
                    let cover = Cover {
                        path: file.path.clone(),
                        test: test.clone(),
                    };
                    covers.entry(number).or_default().push(cover);
                }
            }
        }
        Ok(covers)
    }

    /// Returns the numbers that a comment names.
    fn named<'a>(&self, line: &'a str) -> Option<&'a str> {
        let text = line.strip_prefix("//").or_else(|| line.strip_prefix('#'))?;
        text.trim().strip_prefix(self.word)?.strip_prefix(':')
    }
}

/// Reads lines `number: text`.
fn numbered(path: &str, text: &str) -> Result<BTreeMap<u32, String>, Failure> {
    let mut found = BTreeMap::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("{path}: `{line}` is not `NUMBER: TEXT`");
        let (number, text) = line.split_once(':').ok_or_else(wrong)?;
        let number = number.trim().parse().map_err(|_| wrong())?;
        if found.insert(number, text.trim().to_owned()).is_some() {
            return Err(format!("{path}: {number} is there twice"));
        }
    }
    Ok(found)
}
