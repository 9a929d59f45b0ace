"""The verb `build`, which makes a judged task from one's own questions and documents."""

from __future__ import annotations

from pathlib import Path

from r2med.build.build_progress import BuildProgress
from r2med.build.builder import Builder
from r2med.config.request_settings import RequestSettings, requesting
from r2med.llm import Limits, session
from r2med.storage.files import expanded
from r2med.verbs.arguments import check_type


def build(
    folder: str | Path,
    *,
    until: str = "",
    max_cost: float | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    rpm: float | None = None,
) -> BuildProgress:
    """Run the steps of the plan in a folder, or go on where they were stopped; `r2med build init` writes such a plan.

    It ends after the step named by `until`, and before more than `max_cost` dollars are spent. What is finished is
    kept item by item, as with `r2med build run`.

    >>> import r2med
    >>> try:
    ...     r2med.build("no-such-folder")
    ... except r2med.R2medError as error:
    ...     print(error)
    no-such-folder/plan.toml: no such file; make one with: r2med build init
    """
    check_type(folder, (str, Path), "a build is the folder of its plan")
    check_type(until, (str,), "until is the name of a step, such as 'read'")
    builder = Builder(expanded(folder))
    settings = RequestSettings(timeout, retries, rpm, concurrency)
    with requesting(settings), session(Limits.configured(max_cost=max_cost)):
        return builder.run(until)
