#!/usr/bin/env python3
"""search_site.py BROWSER SITE WORDS PAGE [--pictures FOLDER PAGE...]: searches the site that ci/docs has made as a reader does, in
headless Chromium, from files and without a network. The results for WORDS have to link to PAGE (such as reference/CONTRACT.html).
With --pictures, FOLDER gets pictures of these pages, as a phone and as a screen, light and dark.

Exit code: 0 when the page is found, 1 otherwise, with a line that says what was found.
"""

import itertools
import json
import os
import sys
import urllib.parse

from draw_pages import BACKS, Browser

LIMIT_SECONDS = 60
# The search reads its index, and shows one result after the other.
FOUND = """new Promise(done => {
  const end = Date.now() + %d;
  const look = () => {
    const links = [...document.querySelectorAll("#search-results li a")].map(each => each.href);
    const is_over = /found|did not match/.test(document.querySelector("#search-results")?.textContent ?? "");
    if ((is_over && links.length > 0) || Date.now() > end) done(JSON.stringify(links)); else setTimeout(look, 50);
  };
  look();
})""" % (LIMIT_SECONDS * 1000)


def main(program, site, words, page, *options):
    site = os.path.abspath(site)
    with open(os.path.join(os.path.dirname(site), "browser.log"), "w", encoding="utf-8") as log:
        browser = Browser(program, log)
        browser.load("file://%s/search.html?q=%s" % (site, urllib.parse.quote_plus(words)), 1600, "light")
        links = json.loads(browser.call("Runtime.evaluate", expression=FOUND, awaitPromise=True)["result"]["value"])
        if options[:1] == ("--pictures",):
            browser.picture(os.path.join(options[1], "search.png"))
            for each, width, screen in itertools.product(options[2:], (400, 1600), BACKS):
                browser.load("file://%s/%s" % (site, each), width, screen)
                browser.picture(os.path.join(options[1], "%s-%d-%s.png" % (each.replace("/", "-")[:-5], width, screen)))
        browser.close()
    found = [os.path.relpath(urllib.parse.urlparse(link).path, site) for link in links]
    if page in found:
        print("'%s' leads to %s, the %d. of %d results" % (words, page, found.index(page) + 1, len(found)))
        return 0
    print("FAILED: '%s' does not lead to %s; the %d results: %s" % (words, page, len(found), " ".join(found[:10])))
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
