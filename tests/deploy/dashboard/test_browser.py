"""What a person sees in Chromium of a simulated afternoon, and what the page does when things go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from spotweave.deploy.model.jobs import JobSpec, JobState, SparkBatch, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.security.tokens import AccessTokens, Role
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.run import HttpListener
from spotweave.deploy.store.intents import CandidateRecord
from spotweave.deploy.store.jobs import Job
from tests.deploy.dashboard.browser import INSTALLED, Browser, browser
from tests.deploy.dashboard.story import EVIL, LENGTH_S, Shown, application, told
from tests.deploy.scheduler.worlds import World
from tests.deploy.server.service import decide

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not INSTALLED, reason="needs /usr/bin/chromium and /usr/bin/chromedriver"),
]

# Colours under all text that is seen, and of the text itself; by the formula of WCAG 2.2.
CONTRAST = """
const parse = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const under = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
};
const low = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const empty = !walker.currentNode.textContent.trim();
  if (empty || !element.checkVisibility() || element.closest("option")) continue;
  const [a, b] = [light(parse(getComputedStyle(element).color)), light(under(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) low.push(`${element.className}: ${element.textContent} ${ratio.toFixed(2)}`);
}
return [...new Set(low)];
"""
UNNAMED = """
return [...document.querySelectorAll("button, input, select, [role=img], [role=region], dialog[open]")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()
    || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent))
  .map((one) => one.outerHTML);
"""


@dataclass
class Open:
    world: World
    shown: Shown
    service: HttpListener
    page: Browser

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}/"

    def show(self, width: int = 1280, height: int = 900, scheme: str = "light") -> Browser:
        self.page.look(width, height, scheme)
        self.page.complaints()
        self.page.hosts_asked()
        self.page.open("about:blank")
        self.page.open(self.url)
        self.page.until_filled()
        return self.page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@contextmanager
def opened(
    folder: Path, deciders: Deciders, page: Browser, length_s: float, **options: Any
) -> Iterator[Open]:
    world = told(folder, length_s)
    shown = Shown(world)
    with HttpListener(application(world, shown, deciders, **options), port=0) as service:
        yield Open(world, shown, service, page)


@pytest.fixture(scope="module")
def afternoon(tmp_path_factory: pytest.TempPathFactory, deciders: Deciders, page: Browser) -> Iterator[Open]:
    """Only looked at: what changes the world has one of its own."""
    with opened(tmp_path_factory.mktemp("world"), deciders, page, LENGTH_S) as one:
        yield one


@pytest.fixture
def morning(tmp_path: Path, deciders: Deciders, page: Browser) -> Iterator[Open]:
    """Nothing has been submitted yet."""
    with opened(tmp_path, deciders, page, -1.0, mode=None) as one:
        yield one


def test_every_job_interruption_and_the_money_are_seen(afternoon: Open) -> None:
    page, store = afternoon.show(), afternoon.world.store
    jobs = store.jobs.latest(100)
    assert len(page.all(".job")) == len(jobs) == 9
    for job in jobs:
        row = f".job[data-job='{job.job_id}']"
        state = "waiting" if job.state is JobState.PENDING else job.state.value
        assert page.text(f"{row} .badge") == state
        if job.state is JobState.SUCCEEDED:
            assert page.text(f"{row} .second > span:nth-of-type(2)") == "100 %"
        ended = [one for one in store.instances.of_job(job.job_id) if one.ended_s is not None]
        taken = {(one.key.task, one.ended_s) for one in ended if one.by_provider}
        assert len(page.all(f"{row} > .lane:first-child .sign.interrupted")) == len(taken)
        deadline = getattr(job.spec.work, "deadline_s", None)
        assert bool(page.all(f"{row} .deadline, {row} .beyond")) == (deadline is not None) or job.ended_s
    assert page.all(".gantt .sign.interrupted")
    warned = {one.key for one in store.instances.live() if one.notice_s is not None}
    assert warned
    lanes = sum(1 if key.task == "main" else 2 for key in warned)
    assert len(page.all(".gantt .sign.notice")) == lanes, "in the job's lane, and in that of its task"
    bill = store.costs.total(afternoon.world.clock.now())
    assert page.text("#money") == f"${float(bill.usd):.4f}"
    assert page.text("#on-demand") == f"${float(bill.on_demand_usd):.4f}"
    assert page.text("#saved") == f"${float(bill.on_demand_usd) - float(bill.usd):.4f}"
    assert len(page.all("[data-offer]")) == 5
    assert len(page.all("[data-instance]")) == len(store.instances.live())
    assert page.text("#mode") == "mode: act"
    for market in ("spot", "on_demand", "owned"):
        assert page.all(f".gantt .span.{market}:not(.boot)")


def test_nothing_is_asked_of_elsewhere_and_nothing_is_complained_of(afternoon: Open) -> None:
    page = afternoon.show()
    asked = "performance.getEntriesByType('resource').filter((one) => /overview/.test(one.name))"
    page.until(f"return {asked}.length > 1")
    assert page.hosts_asked() == {f"127.0.0.1:{afternoon.service.port}"}
    assert page.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_it_fits_the_screen_and_can_be_read(afternoon: Open, width: int, scheme: str) -> None:
    page = afternoon.show(width, 812, scheme)
    assert page.run("return document.documentElement.scrollWidth") <= width
    assert page.run(CONTRAST) == []
    assert page.run(UNNAMED) == []
    assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")


def test_a_job_is_explained_by_keyboard_and_by_its_address(afternoon: Open) -> None:
    page = afternoon.show()
    job = next(job for job in afternoon.world.store.jobs.latest(100) if job.spec.name == "nightly-report")
    page.run("document.querySelector(arguments[0]).focus()", f".job[data-job='{job.job_id}'] .name")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until_shown("#explain-body dl")
    for text in ("nightly-report, spark-batch", "own misses", "chosen", "no capacity", "job.succeeded"):
        assert text in page.text("#explain"), text
    assert page.run("return location.hash") == f"#job={job.job_id}"
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until("return !document.querySelector('#explain').open")
    page.open(f"{afternoon.url}#job={job.job_id}")
    page.driver.refresh()
    page.until_shown("#explain-body dl")


def test_the_log_of_a_job_is_a_click_away_and_shown_as_text(afternoon: Open) -> None:
    page = afternoon.show(375, 812)
    job = next(job for job in afternoon.world.store.jobs.latest(100) if job.spec.name == "digits")
    page.run("document.querySelector(arguments[0]).click()", f".job[data-job='{job.job_id}'] .name")
    page.until_shown("#explain-body dl")
    page.one("#show-log").click()
    page.until("return document.querySelector('#log-text').innerText !== ''")
    told = page.text("#log-text")
    assert told.startswith(f"{job.job_id}: attempt 1 of server")
    assert EVIL in told
    assert "␛[2J" in told
    assert page.text("#log-note").startswith("attempt 1, at most 500 lines")
    page.run("const one = document.querySelector('#log-task'); one.value = 'client-lyon';"
             "one.dispatchEvent(new Event('change'))")  # fmt: skip
    page.until("return document.querySelector('#log-text').innerText.includes('of client-lyon')")
    assert page.all("dialog img, dialog b") == []
    assert page.run("return document.documentElement.scrollWidth") <= 375
    assert page.run(CONTRAST) == []
    assert page.run(UNNAMED) == []
    assert page.complaints() == []
    page.one("#explain-close").click()


def test_lanes_close_and_groups_are_chosen_and_the_focus_stays(afternoon: Open) -> None:
    page = afternoon.show()
    assert len(page.all(".lane.task")) == 3
    page.one(".toggle").send_keys(Keys.ENTER)
    page.until("return document.querySelectorAll('.lane.task').length === 0")
    assert page.run("return document.activeElement.className") == "toggle"
    page.one("[data-key='group ended']").click()
    live = len(afternoon.world.store.jobs.live())
    page.until("return document.querySelectorAll('.job').length === arguments[0]", live)
    page.one("[data-key^='candidates']").click()
    page.until_shown(".candidates table")


def test_what_people_wrote_is_shown_as_text(morning: Open) -> None:
    store, now_s = morning.world.store, morning.world.clock.now()
    spec = JobSpec(name="evil", work=SparkBatch(script=EVIL, deadline_s=100.0))
    key = TaskKey("evil-1", "main")
    with store.transaction():
        store.jobs.add(Job("evil-1", spec, JobState.RUNNING, now_s, "/x", submitter=EVIL))
        attempt = store.tasks.begin(key, [], now_s)
        store.tasks.report_all(
            [TaskReport(key, attempt, Phase.FAILED, message=EVIL, details={EVIL: EVIL})], now_s
        )
        store.jobs.set_state("evil-1", JobState.FAILED, now_s, EVIL)
        store.events.add(f"task.{EVIL}", now_s, {EVIL: EVIL}, key=key)
    decide(store, "evil-1", CandidateRecord(EVIL, {EVIL: 1.0}, 0.3, True, EVIL), policy=EVIL)
    page = morning.show()
    page.one("[data-key^='candidates']").click()
    page.until_shown(".candidates table")
    page.one(".job .name").click()
    page.until_shown("#explain-body dl")
    assert page.run("return document.title") == "Spotweave"
    assert page.all("main img, main b, dialog img, dialog b") == []
    for place in (".job .why", "#decisions", "#events", "#explain-body dl", "#explain-body details"):
        assert EVIL in page.text(place), place
    assert page.complaints() == []


def test_an_empty_store_says_how_to_submit_the_first_job(morning: Open) -> None:
    page = morning.show()
    assert "spotweave submit examples/wordcount.yaml" in page.text("#gantt")
    assert page.text("#money") == "$0.0000"
    assert page.run("return document.querySelector('#mode').hidden")


def test_an_old_pass_and_a_lost_connection_are_said(morning: Open) -> None:
    page = morning.show()
    assert page.text("#alerts") == ""
    morning.shown.behind_s = 75.0
    page.until("return document.querySelector('#alerts').innerText.includes('last pass ended 1 m 15 s ago')")
    morning.shown.behind_s = 0.0
    page.until("return document.querySelector('#alerts').innerText === ''")
    morning.service.stop()
    page.until("return document.querySelector('#alerts').innerText.includes('Connection lost')")
    assert "the service does not answer" in page.text("#alerts")
    assert page.run("return document.body.classList.contains('stale')")


def test_what_is_new_appears_by_itself_and_not_while_paused(morning: Open) -> None:
    page = morning.show()
    page.one("#pause").click()
    morning.world.submit(JobSpec(name="late", work=SparkBatch(script="x.py")))
    asked = page.run("return performance.getEntriesByType('resource').length")
    page.until("return document.querySelector('#pulse').innerText.startsWith('Paused, heard 4 s')")
    assert page.run("return performance.getEntriesByType('resource').length") == asked
    page.one("#pause").click()
    page.until_shown(".job[data-job=late-1]")


def test_a_token_is_asked_for_kept_in_this_tab_and_refused(
    tmp_path: Path, deciders: Deciders, page: Browser
) -> None:
    with opened(tmp_path, deciders, page, -1.0, tokens=True) as closed:
        now_s = closed.world.clock.now()
        access = AccessTokens(closed.world.store)
        token = access.create("a viewer", Role.VIEWER, now_s)
        page.look(375, 812)
        page.open(closed.url)
        page.until("return !document.querySelector('#token-form').hidden")
        assert page.run("return document.querySelector('#content').hidden")
        assert page.run("return document.documentElement.scrollWidth") <= 375
        page.one("#token").send_keys("nonsense", Keys.ENTER)
        page.until("return document.querySelector('#token-error').innerText !== ''")
        assert "token" in page.text("#token-error")
        page.one("#token").send_keys(token.text, Keys.ENTER)
        page.until_filled()
        kept = page.run("return [sessionStorage.length, localStorage.length, document.cookie, location.href]")
        assert kept[:3] == [1, 0, ""]
        assert token.text not in kept[3]
        access.revoke(token.record.token_id, now_s)
        page.until("return !document.querySelector('#token-form').hidden")
        assert "revoked" in page.text("#token-error")
        assert page.run("return sessionStorage.length") == 0
