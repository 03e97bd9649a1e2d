"""The README's pictures of MLflow: a sweep's trials, and their charts, as Chromium shows them.

python -m infra.pictures --uri http://127.0.0.1:5001 --sweep demo      # after `sentdist up`, a sweep and `source .sentdist/env`
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from infra.browser import Browser, open_browser

WIDTH, TABLE_HEIGHT, CHARTS_HEIGHT = 1440, 760, 1250  # of the window; the page has about 140 less
MAX_BYTES = 150_000
CHROME = (
    "mlflow.experiment_page.shared_view.dismiss",  # the banner that a view is shared
    "mlflow_header.toggle_sidebar_button",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", default="http://127.0.0.1:5001", help="MLflow server")
    parser.add_argument("--sweep", default="demo", help="name of a sweep on it, which must be finished")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures", help="folder for the PNG files")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with open_browser(given.uri, width=WIDTH, height=TABLE_HEIGHT) as browser:
        browser.visit(f"#/experiments/{_experiment(given.uri, given.sweep)}/runs?workflowType=machine_learning")
        browser.wait_for_text("matching runs", f"sweep {given.sweep}")
        browser.click("Trials, best first", within="a")
        browser.wait_for_text("You're viewing a shared view", "seed 0")
        _take(browser, given.out / "mlflow-trials.png")
        browser.chrome.set_window_size(WIDTH, CHARTS_HEIGHT)
        browser.click("Charts of the trials", within="a")
        browser.wait_for_text("What the sweep compares")
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
    """The page without what says nothing about the sweep, in 256 colours."""
    from PIL import Image

    for part in CHROME:
        browser.chrome.execute_script("document.querySelector(`[data-component-id='${arguments[0]}']`)?.click()", part)
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
