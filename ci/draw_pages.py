#!/usr/bin/env python3
"""draw_pages.py BROWSER FOLDER LIST [--pictures]: loads the pages of FOLDER that LIST names in headless Chromium, each at the
width of a phone and of a screen, light and dark. LIST has a line for each page, with tabs between:

    NAME  CHARTS  TEXT    FOLDER/NAME.html has drawn so many charts, has the colours of the screen, and says TEXT
    NAME  broken          a script of the page fails, and the page does not count as drawn

One browser draws all of them, as a start takes longer than ten pages: it is told what to do through two pipes, in the words
of the DevTools protocol (--remote-debugging-pipe). With --pictures, FOLDER gets NAME-WIDTH-SCREEN.png of each.

Exit code: 0 when all is drawn, 1 otherwise, with a line for each thing that is wrong.
"""

import base64
import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import time

LIMIT_SECONDS = 120  # for one answer, and for one page
BACKS = {"dark": "#14171a", "light": "#ffffff"}
# Scripts have run when the page is loaded; a chart is drawn before the frame that follows.
DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(document.documentElement.outerHTML))))"


class Browser:
    """A Chromium with one tab."""

    def __init__(self, program, log):
        to_browser, self.input = os.pipe()
        self.output, from_browser = os.pipe()

        def place():  # the browser reads from descriptor 3, and writes to 4
            read, write = os.dup(to_browser), os.dup(from_browser)  # neither of the two is 3 or 4 yet
            os.dup2(read, 3)
            os.dup2(write, 4)

        # Its files are in a folder that it does not share with the browser of a user.
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--user-data-dir=" + self.profile.name, "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False, preexec_fn=place,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.events = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(LIMIT_SECONDS)
        self.profile.cleanup()

    def receive(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.unread:
            if not select.select([self.output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser gave no answer within %d s" % LIMIT_SECONDS)
            part = os.read(self.output, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.unread += part
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        """The result of a command. Events that come before it are kept."""
        number = next(self.numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.input, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            message = self.receive(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError("%s: %s" % (method, message["error"]["message"]))
                return message["result"]
            self.events.append(message)

    def load(self, url, width, screen):
        """Loads a page; returns its text as HTML when it is drawn, and the errors of its scripts."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1600, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": screen}])
        self.events.clear()
        answer = self.call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError("%s: %s" % (url, answer["errorText"]))
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(is_loaded(event, answer["loaderId"]) for event in self.events):
            self.events.append(self.receive(deadline))
        drawn = self.call("Runtime.evaluate", expression=DRAWN, awaitPromise=True)["result"]["value"]
        return drawn, [error for error in map(error_of, self.events) if error]

    def picture(self, file):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=False)["data"]
        with open(file, "wb") as image:
            image.write(base64.b64decode(data))


def is_loaded(event, loader):
    """Whether an event says that the page of this loader is there; one of the page before may be late."""
    parameters = event.get("params", {})
    is_of_page = event.get("method") == "Page.lifecycleEvent" and parameters["loaderId"] == loader
    return is_of_page and parameters["name"] == "load"


def error_of(event):
    """What an event says of a script that failed, or None."""
    parameters = event.get("params", {})
    if event.get("method") == "Runtime.exceptionThrown":
        details = parameters["exceptionDetails"]
        return details.get("exception", {}).get("description", details["text"])
    if event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
        return " ".join(str(argument.get("value", "")) for argument in parameters["args"])
    if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
        return parameters["entry"]["text"]
    return None


def problems(drawn, errors, screen, charts, text):
    """What is wrong with a page that should be drawn."""
    if text not in drawn:
        yield "does not say '%s'" % text
    if charts > 0:
        if 'data-drawn="%d"' % charts not in drawn:
            yield "has not drawn %d charts" % charts
        if 'data-back="%s"' % BACKS[screen] not in drawn:
            yield "has other colours"
    for error in errors:
        yield "has a script error: %s" % error.split("\n")[0]


def problems_of_broken(drawn, errors):
    """What is wrong if a page whose script fails is taken for a good one."""
    if not errors:
        yield "has a script error, which is not seen"
    if "data-drawn=" in drawn:
        yield "has a script error, and counts as drawn"


def main(program, folder, listed, *options):
    with open(listed, encoding="utf-8") as text:
        pages = [line.rstrip("\n").split("\t") for line in text]
    with open(os.path.join(folder, "browser.log"), "w", encoding="utf-8") as log:
        browser = Browser(program, log)
        found = 0
        for name, charts, *text in pages:
            url = "file://" + os.path.join(os.path.abspath(folder), name + ".html")
            for width, screen in itertools.product((400, 1600), BACKS):
                try:
                    drawn, errors = browser.load(url, width, screen)
                except (RuntimeError, TimeoutError, EOFError) as error:
                    wrong = ["does not load: %s" % error]
                else:
                    wrong = (
                        problems_of_broken(drawn, errors)
                        if charts == "broken"
                        else problems(drawn, errors, screen, int(charts), text[0])
                    )
                for what in wrong:
                    print("FAILED: %s at %d pixels, %s screen, %s" % (name, width, screen, what))
                    found += 1
                if "--pictures" in options:
                    browser.picture(os.path.join(folder, "%s-%d-%s.png" % (name, width, screen)))
        browser.close()
    if not pages:
        print("FAILED: %s names no page" % listed)
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
