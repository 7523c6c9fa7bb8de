"""What the commands that make many trainings and one page share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farflung.cli.terminal import Output, progress_bar
from farflung.config.checks import printable

if TYPE_CHECKING:
    from farflung.studies.suite import SuiteStatus


def run_suite(
    title: str,
    out: Path,
    output: Output,
    work: Callable[..., Any],
    write: Callable[[Any], dict[str, Any]],
    print_summary: Callable[[dict[str, Any]], None],
) -> int:
    """Does the work with its progress shown, has the page written, and prints the summary that this returns."""
    from farflung.runs.files import to_json
    from farflung.runs.interrupts import Stopped, stoppable

    notes: list[str] = []
    with stoppable():
        try:
            with progress_bar(output.quiet) as show:

                def on_progress(status: "SuiteStatus") -> None:
                    show(title, status.steps, status.num_steps, status.what)

                found = work(out, force=output.force, on_progress=on_progress, on_note=notes.append)
                show(title, 1, 1, "figures and page")
                summary = write(found)
        except KeyboardInterrupt:
            raise Stopped(f"what is finished is kept in {out}: the same command goes on from there") from None
        finally:
            for note in notes:
                print(f"farflung: {printable(note)}", file=sys.stderr)
    if output.json:
        print(to_json(summary))
    elif not output.quiet:
        print_summary(summary)
    return 0
