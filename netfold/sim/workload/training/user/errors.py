"""Errors of a user's model, in words."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from netfold.errors import UserModelError


def told(error: BaseException, path: str, given: str, doing: str) -> UserModelError:
    """An exception of the user's code, with the last of the user's own lines that it passed.

    Parameters
    ----------
    error
        The exception.
    path
        Of the user's file.
    given
        The file as the user calls it.
    doing
        What was being done, such as "step 3, worker 0".
    """
    linecache.checkcache(path)  # the file may have been edited since this process read it
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    what = " ".join(what.split())
    before = f"{doing}: " if doing else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        line = (error.text or "").strip()
        return UserModelError(f"{before}{given}, line {error.lineno}: {what}", _line(line))
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_same(frame.filename, path)]
    if not own:
        return UserModelError(f"{before}{given}: {what}")
    last = own[-1]
    text = last.line or linecache.getline(path, last.lineno or 0).strip()
    return UserModelError(f"{before}{given}, line {last.lineno}, in {last.name}: {what}", _line(text))


def _line(text: str) -> str:
    return f"the line is: {text}" if text else ""


def _is_same(filename: str, path: str) -> bool:
    return filename == path or Path(filename) == Path(path)
