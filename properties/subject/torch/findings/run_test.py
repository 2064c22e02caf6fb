#!/usr/bin/env python3
"""The runner of the findings, with scripts that need no PyTorch: one that always shows, one that never does, one that
cannot tell, one that lacks what it is about, one that hangs, one that crashes, and one that leaves a process behind."""

import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("findings_run", os.path.join(HERE, "run.py"))
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)

SCRIPTS = {
    "always-shows": "raise SystemExit(1)",
    "never-shows": "raise SystemExit(0)",
    "neither": "raise SystemExit(2)",
    "lacks-it": "raise SystemExit(3)",
    "unknown-code": "raise SystemExit(77)",
    "hangs": "import time\nwhile True: time.sleep(1)",
    "crashes": "import os\nos.abort()",
    "leaves-a-process": "import os, subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "open(os.path.join(os.path.dirname(__file__), 'child'), 'w').write(str(child.pid))\n"
    "os._exit(1)",
}


class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name, text in SCRIPTS.items():
            with open(self.path(name + ".py"), "w", encoding="utf-8") as script:
                script.write(text)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_main(self, *words, python=True):
        """Exit code, and what was printed."""
        out = io.StringIO()
        if python:
            words = ("--python", "here=" + sys.executable, *words)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = runner.main(["--folder", self.folder.name, *words])
        return code, out.getvalue()

    def test_what_always_shows_and_what_never_does(self):
        code, text = self.run_main("always-shows", "never-shows")
        self.assertEqual(code, 0)
        self.assertEqual(text, "| finding | here |\n|---|---|\n| always-shows | shown |\n| never-shows | - |\n")

    def test_each_python_has_a_column(self):
        _, text = self.run_main("--python", "there=" + sys.executable, "--jobs", "2", "never-shows")
        self.assertEqual(text, "| finding | here | there |\n|---|---|---|\n| never-shows | - | - |\n")

    def test_what_cannot_be_told_is_no_success(self):
        for name in ("neither", "unknown-code"):
            code, text = self.run_main(name)
            self.assertEqual(code, 2)
            self.assertIn("| %s | cannot tell |" % name, text)

    def test_what_is_not_there_is_not_compared(self):
        with open(self.path("table.md"), "w", encoding="utf-8") as file:
            file.write("| finding | here |\n|---|---|\n| lacks-it | shown |\n")
        code, text = self.run_main("--check", self.path("table.md"), "lacks-it")
        self.assertEqual(code, 0, text)
        self.assertIn("| lacks-it | not there |", text)

    def test_each_folder_has_a_table(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "elsewhere.py"), "w", encoding="utf-8") as script:
                script.write(SCRIPTS["always-shows"])
            code, text = self.run_main("--folder", other, "elsewhere", "never-shows")
            self.assertEqual(code, 0, text)
            rows = ("never-shows | -", "elsewhere | shown")
            self.assertEqual(text, "\n".join("| finding | here |\n|---|---|\n| %s |\n" % row for row in rows))
            os.rename(os.path.join(other, "elsewhere.py"), os.path.join(other, "crashes.py"))
            with self.assertRaises(runner.Refusal):
                self.run_main("--folder", other, "never-shows")

    def test_a_crash_is_told_apart(self):
        code, text = self.run_main("crashes")
        self.assertEqual(code, 2)
        self.assertIn("| crashes | crashes |", text)

    def test_a_hang_is_ended_at_the_limit(self):
        code, text = self.run_main("--limit", "1", "hangs")
        self.assertEqual(code, 2)
        self.assertIn("| hangs | hangs |", text)

    def test_no_process_is_left(self):
        code, _ = self.run_main("leaves-a-process")
        self.assertEqual(code, 0)
        with open(self.path("child"), encoding="utf-8") as file:
            pid = file.read()
        for _ in range(600):
            try:
                with open("/proc/%s/stat" % pid, encoding="utf-8") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except (FileNotFoundError, ProcessLookupError):
                return
            time.sleep(0.05)
        self.fail("the process that a script had started is still there")

    def test_a_table_that_differs_is_found(self):
        rows = "about it\n\n| finding | here |\n|---|---|\n| always-shows | %s |\n| never-shows | - |\n\nmore\n"
        for cell, expected in (("shown", 0), ("-", 1)):
            with open(self.path("table.md"), "w", encoding="utf-8") as file:
                file.write(rows % cell)
            code, text = self.run_main("--check", self.path("table.md"), "always-shows", "never-shows")
            self.assertEqual(code, expected, text)
        self.assertIn("here, always-shows: shown, but the table has -", text)

    def test_a_row_that_the_table_lacks_is_found(self):
        with open(self.path("table.md"), "w", encoding="utf-8") as file:
            file.write("| finding | here |\n|---|---|\n| never-shows | - |\n")
        code, text = self.run_main("--check", self.path("table.md"), "always-shows")
        self.assertEqual(code, 1)
        self.assertIn("no such cell", text)

    def test_bad_usage_is_refused(self):
        for words in (
            ["--python", "x=" + self.path("none"), "never-shows"],
            ["no-such-finding"],
            ["--jobs", "0"],
            ["--check", self.path("none")],
            ["--unknown"],
            ["--python", "here=" + sys.executable],
        ):
            with self.assertRaises(runner.Refusal, msg=words):
                self.run_main(*words)
        with self.assertRaises(runner.Refusal):
            self.run_main(python=False)


class Findings(unittest.TestCase):
    """What every finding of the folders has to be."""

    def test_scripts_are_short_and_say_what_they_show(self):
        for name, folder in runner.folders_by_name(runner.FOLDERS).items():
            with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
                lines = file.read().split("\n")[:-1]
            self.assertLessEqual(len(lines), 40, name)
            self.assertLessEqual(max(map(len, lines)), 120, name)
            self.assertTrue(lines[0].startswith('"""'), name)
            self.assertEqual(sum(line.startswith("verdict(") for line in lines), 1, name)

    def test_each_compiles_as_one_file(self):
        for name, folder in runner.folders_by_name(runner.FOLDERS).items():
            text = runner.one_file(folder, name)
            compile(text, name, "exec")
            self.assertNotIn("from ranks", text)

    def test_the_tables_have_each_finding(self):
        for folder in runner.FOLDERS:
            recorded = {name for name, _ in runner.read_table(os.path.join(folder, "..", "FINDINGS.md"))}
            self.assertEqual(recorded, set(runner.names_in(folder)))


if __name__ == "__main__":
    unittest.main()
