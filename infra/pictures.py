"""The README's pictures of MLflow: a sweep's trials, and their charts, as Chromium shows them.

python -m infra.pictures      # after quickstart.sh and `source .sentdist/env`; needs Chromium, its driver, `pip install selenium`
"""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path

from infra.browser import Browser, open_browser
from sentdist.tracking.views import view_page

WIDTH, TABLE_HEIGHT, CHARTS_HEIGHT = 1440, 860, 1250  # of the window; the page has about 140 less
MAX_BYTES = 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", default=os.environ.get("MLFLOW_TRACKING_URI", "http://127.0.0.1:5001"), help="MLflow server")
    parser.add_argument("--sweep", default="demo", help="name of a sweep on it, which must be finished")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures", help="folder for the PNG files")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with open_browser(given.uri, width=WIDTH, height=TABLE_HEIGHT) as browser:
        experiment = _experiment(given.uri, given.sweep)
        browser.visit(view_page(experiment, "sentdist-trials", "TABLE"))
        browser.wait_for_text("matching runs", "best_dev_score", "seed 0")
        _take(browser, given.out / "mlflow-trials.png")
        browser.chrome.set_window_size(WIDTH, CHARTS_HEIGHT)
        browser.visit(view_page(experiment, "sentdist-charts", "CHART"))
        browser.wait_for_text("What the sweep compares")
        browser.wait_for(lambda: browser.count(".barlayer .point"), what=lambda: "bar")
        browser.wait_for(lambda: browser.count(".scatterlayer .js-line"), what=lambda: "learning curve")
        browser.wait_for(lambda: not browser.count("[aria-busy=true], .ag-loading"), what=lambda: "end of loading")
        _take(browser, given.out / "mlflow-charts.png")


def _experiment(uri: str, sweep: str) -> str:
    from mlflow import MlflowClient

    found = MlflowClient(tracking_uri=uri).get_experiment_by_name(sweep)
    if found is None:
        raise SystemExit(f"There is no sweep {sweep} on {uri}.")
    return str(found.experiment_id)


def _take(browser: Browser, path: Path) -> None:
    """The page, its side bar folded, in 256 colours."""
    from PIL import Image

    toggle = "document.querySelector(\"[data-component-id='mlflow_header.toggle_sidebar_button']\")?.click()"
    browser.chrome.execute_script(toggle)
    # tools that MLflow shows under the mouse, and a browser without a mouse always
    browser.chrome.execute_script("document.head.insertAdjacentHTML('beforeend', '<style>.modebar-container { display: none }</style>')")
    browser.settle()
    picture = Image.open(io.BytesIO(browser.chrome.get_screenshot_as_png())).convert("RGB")
    picture.quantize(colors=256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {picture.width} × {picture.height}, {size / 1000:.0f} kB")
    if size > MAX_BYTES:
        raise SystemExit(f"{path} is larger than {MAX_BYTES // 1000} kB: make the window smaller.")


if __name__ == "__main__":
    main()
