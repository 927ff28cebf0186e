"""Draw README's picture: two texts of a page that `mialib view` wrote, as a PNG. Needs Chromium.

mialib view examples/texts.jsonl --model smollm2-135m --by log_prob --output build/view.html
python tools/picture.py build/view.html book/figures/token_view.png 8 9
"""

import sys
from io import BytesIO
from pathlib import Path
from shutil import which

from PIL import Image
from playwright.sync_api import sync_playwright

LEAVE = """numbers => {
    document.querySelectorAll("h1, h2, main > p, .mv-legend ~ .mv-legend").forEach(of => of.remove());
    document.querySelectorAll(".mv[role=group]").forEach((of, i) => numbers.includes(i) || of.remove());
    document.querySelectorAll(".mv, .mv *").forEach(of => of.style.marginBottom = "0.2rem");
    document.querySelectorAll(".mv-strip").forEach(of => of.style.paddingBottom = "0.6rem");
    document.querySelector("main").style.cssText = "margin: 0; padding: 0";
    document.body.style.cssText = "margin: 0; padding: 8px 12px; width: 840px; background: white";
}"""

page_file, out, *numbers = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 880, "height": 600}, device_scale_factor=2)
    page.goto(Path(page_file).resolve().as_uri())
    page.evaluate(LEAVE, [int(number) for number in numbers])
    picture = Image.open(BytesIO(page.locator("body").screenshot()))
picture.convert("RGB").quantize(32).save(out, optimize=True)
