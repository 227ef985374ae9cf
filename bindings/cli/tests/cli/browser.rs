//! Headless Chromium, driven over pipes by the `DevTools` protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::program::LIMIT;

/// Starts the browser so that it reads from descriptor 3 and writes to 4.
const SCRIPT: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;
const FLAGS: [&str; 11] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--mute-audio",
];
const POLL: Duration = Duration::from_millis(15);

static BROWSER: Mutex<()> = Mutex::const_new(());

/// Waits until no other test has a browser: several at once use up all processors and are late.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    BROWSER.lock().await
}

/// A page in a browser of its own. Dropping it kills the browser.
pub(crate) struct Page {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    errors: Vec<String>,
    _profile: TempDir,
}

impl Page {
    /// Opens a page in a window of this size. `scheme` is `light` or `dark`.
    pub(crate) fn open(url: &str, (width, height): (u32, u32), scheme: &str) -> Self {
        let profile = TempDir::new().expect("a folder");
        let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, &chromium])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (sender, from) = channel();
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        thread::spawn(move || {
            for message in out.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("a message");
                let _ = sender.send(message);
            }
        });
        let to = child.stdin.take().expect("it is piped");
        let mut page = Self {
            child,
            to,
            from,
            last: 0,
            session: None,
            errors: Vec::new(),
            _profile: profile,
        };
        let target = page.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", &attach);
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), &json!({}));
        }
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        page.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        page.call("Emulation.setEmulatedMedia", &scheme);
        page.go(url);
        page
    }

    pub(crate) fn go(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url}));
    }

    /// Returns the value of an expression.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", &question(expression));
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.eval(&format!(
            "document.querySelector({selector:?})?.textContent ?? ''"
        ));
        found.as_str().expect("a text").to_owned()
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.eval(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Waits until an expression is true, and returns how long that took.
    #[track_caller]
    pub(crate) fn wait(&mut self, expression: &str) -> Duration {
        // The elements that it names may not exist yet.
        let is_so = format!("(() => {{ try {{ return !!({expression}); }} catch {{}} }})()");
        let is_so = question(&is_so);
        let start = Instant::now();
        // A page that reloads meanwhile has no answer.
        let is_true = |answer: Value| answer["result"]["value"] == true;
        while !self.try_call("Runtime.evaluate", &is_so).is_ok_and(is_true) {
            if start.elapsed() > LIMIT {
                let shown = self.eval("document.body.innerText");
                panic!(
                    "it did not become so: {expression}; errors: {:?}; {shown}",
                    self.errors
                );
            }
            thread::sleep(POLL);
        }
        start.elapsed()
    }

    /// Presses a key, such as `Enter` or `a`.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key.len() == 1 {
            key
        } else if key == "Enter" {
            "\r"
        } else {
            ""
        };
        let codes = [
            ("Enter", 13),
            ("Escape", 27),
            ("End", 35),
            ("Home", 36),
            ("ArrowUp", 38),
            ("ArrowDown", 40),
        ];
        let code = codes.iter().find(|(name, _)| *name == key);
        let code = code.map_or(0, |(_, code)| *code);
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Returns the errors on the console since the last call.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        // When the reply arrives, all earlier messages have.
        self.eval("0");
        std::mem::take(&mut self.errors)
    }

    /// Saves a screenshot in the folder `LEASEHOLD_SCREENSHOTS`, if that variable is set.
    pub(crate) fn picture(&mut self, name: &str) {
        if let Some(folder) = std::env::var_os("LEASEHOLD_SCREENSHOTS") {
            let shot = self.call("Page.captureScreenshot", &json!({"format": "png"}));
            let base64 = shot["data"].as_str().expect("a picture").to_owned();
            let path = std::path::Path::new(&folder).join(format!("{name}.png"));
            let mut decoder = Command::new("base64")
                .arg("--decode")
                .stdin(Stdio::piped())
                .stdout(std::fs::File::create(path).expect("a file"))
                .spawn()
                .expect("it starts");
            let stdin = decoder.stdin.take();
            stdin
                .expect("it is piped")
                .write_all(base64.as_bytes())
                .expect("it reads");
            assert!(decoder.wait().expect("it ends").success());
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let result = self.try_call(method, params);
        result.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Returns the result, or the browser's error.
    fn try_call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes());
        sent.and_then(|()| self.to.flush())
            .expect("the browser reads");
        loop {
            let message = self.from.recv_timeout(LIMIT).expect("the browser replies");
            if message["id"] == json!(id) {
                let result = message.get("result");
                return result.cloned().ok_or_else(|| message.clone());
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        let bad = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                matches!(
                    params["type"].as_str(),
                    Some("error" | "warning" | "assert")
                )
            }
            "Log.entryAdded" => params["entry"]["level"] != json!("verbose"),
            _ => false,
        };
        if bad {
            self.errors.push(params.to_string());
        }
    }
}

fn question(expression: &str) -> Value {
    json!({"expression": expression, "awaitPromise": true, "returnByValue": true})
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
