# SPDX-License-Identifier: Apache-2.0
"""What was denied, from SQLite and PostgreSQL alike: both have `sandbox_egress_event` with the same columns.

A store is a state directory (None: weir's own), or a connection of any DB-API driver to the PostgreSQL database that
`weir sidecar` and `weir daemon` copy their events to. What record_egress_event() adds to a state directory is kept beside
weir's own file, in egress.jsonl.
"""
from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import logging
import os
import pathlib
import sqlite3
import stat
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypedDict, Union

from ._errors import WeirError
from ._program import ask_lines

# None or a path: a state directory. Else a DB-API connection.
Store = Any
LOG = logging.getLogger("weir.egress")

_RECORDED = "analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts"
# As PostgreSQL has it; numbers that a sum of all of them has room for.
_EVENTS = """
CREATE TABLE sandbox_egress_event (analysis_id TEXT, ts TEXT NOT NULL, action TEXT NOT NULL CHECK (action IN ('allow', 'deny', 'panic')),
  remote_ip TEXT, remote_port INTEGER, fqdn_pinned TEXT, raw_pkts INTEGER CHECK (abs(raw_pkts) < 1 << 31), layer TEXT, protocol TEXT,
  packets INTEGER, bytes INTEGER, reason TEXT);
"""
_EMITTED = "CREATE TABLE IF NOT EXISTS sandbox_egress_emitted (analysis_id TEXT NOT NULL, destination TEXT NOT NULL, PRIMARY KEY (analysis_id, destination))"
_INSERT = {"event": f"INSERT INTO sandbox_egress_event ({_RECORDED}, packets, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 0)",
           "emitted": "INSERT OR IGNORE INTO sandbox_egress_emitted VALUES (?, ?)"}
_OF_WEIR = "INSERT INTO sandbox_egress_event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ_MAX = 64 << 20  # bytes of what was recorded; the first go unread where there are more
_PACKETS_MAX, _RAW_MAX = (1 << 40) - 1, (1 << 31) - 1
_EPOCH = "1970-01-01T00:00:00.000Z"


@dataclasses.dataclass(frozen=True)
class EgressDeny:
    """What was denied towards one remote address, or, of look-ups, one name. last: the newest, RFC 3339 UTC."""

    remote_ip: Optional[str]
    name: Optional[str]
    packets: int
    events: int
    last: str


@dataclasses.dataclass(frozen=True)
class EgressReviewTask:
    """A destination that a sandbox was denied, for a person to decide about."""

    analysis_id: Optional[str]
    destination: str
    packets: int
    last: str


class DenyTile(TypedDict):
    """A tile of a dashboard. total: packets and look-ups."""

    title: str
    hours: int
    total: int
    by_remote_ip: List[EgressDeny]


def state_directory() -> pathlib.Path:
    """Where weir keeps its store: WEIR_STATE_DIR, /var/lib/weir of root, ~/.local/state/weir of others."""
    if named := os.environ.get("WEIR_STATE_DIR"):
        return pathlib.Path(named)
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/weir")
    return pathlib.Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "weir"


def open_store(state_dir: Union[None, str, "os.PathLike[str]"] = None) -> sqlite3.Connection:
    """A connection that has a copy of a state directory's events, as they are now, as `sandbox_egress_event`.

    WeirError: a file there is not as Weir made it.
    """
    return _copy(_folder(state_dir), "--since", _EPOCH)


def _folder(state_dir: Union[None, str, "os.PathLike[str]"]) -> pathlib.Path:
    return state_directory() if state_dir is None else pathlib.Path(state_dir)


def _empty() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.executescript(_EVENTS + _EMITTED)
    return db


def _copy(folder: pathlib.Path, *which: str) -> sqlite3.Connection:
    """What was recorded, and @which of weir's events. A command may have written to @folder: so weir reads its own store, whose
    schema is code, and SQLite opens nothing there."""
    db = _empty()
    try:
        _read_recorded(folder, db)
        if os.path.lexists(folder / "events.db"):
            events = map(json.loads, ask_lines("events", "--json", "--state-dir", os.fspath(folder), *which))
            db.executemany(_OF_WEIR, (_row(one) for one in events if one["action"] in ("allow", "deny", "panic")))
        db.commit()
        return db
    except BaseException:
        db.close()
        raise


def _row(event: Dict[str, Any]) -> Tuple[Any, ...]:
    packets = min(event["packets"], _PACKETS_MAX)
    return (event["sandbox"], event["ts"], event["action"], event["remote_ip"], event["remote_port"], event["name"],
            min(packets, _RAW_MAX), None if event["layer"] == "none" else event["layer"], event["protocol"], packets,
            min(event["bytes"], _PACKETS_MAX), event["reason"])


def _recorded(folder: pathlib.Path, flags: int) -> int:
    """A descriptor of what record_egress_event() adds to. WeirError, OSError: a link, or not a file of this user's alone."""
    path = folder / "egress.jsonl"
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    there = os.fstat(fd)
    if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid() and there.st_nlink == 1:
        return fd
    os.close(fd)
    raise WeirError(f"{path} is not a file of this user's alone")


def _read_recorded(folder: pathlib.Path, db: sqlite3.Connection) -> None:
    bad = 0
    try:
        fd = _recorded(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _READ_MAX))
        for line in file.read(_READ_MAX).split(b"\n"):
            try:
                for kind, values in json.loads(line or b"{}").items():
                    db.execute(_INSERT[kind], values)
            except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, sqlite3.Error):
                bad += 1
    if bad:
        LOG.warning("%s/egress.jsonl: %d lines are not as they were recorded, ignoring", folder, bad)


def _record(folder: pathlib.Path, kind: str, values: Sequence[Any]) -> None:
    """Add a line. It begins with the end of the one before, which a full disk may have cut."""
    with contextlib.closing(_empty()) as db:
        db.execute(_INSERT[kind], values)
    line = b"\n" + json.dumps({kind: values}).encode()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = _recorded(folder, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(folder))
    finally:
        os.close(fd)


def get_recent_egress_denies(hours: float = 24, store: Store = None, limit: int = 1000) -> List[EgressDeny]:
    """What was denied in the last @hours, by remote address, the most packets first."""
    text = ("SELECT remote_ip, CASE WHEN remote_ip IS NULL THEN fqdn_pinned END, sum(coalesce(packets, raw_pkts, 1)), count(*), max(ts)"
            f" FROM sandbox_egress_event WHERE action = 'deny' AND ts >= '{_ago(hours)}' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT {int(limit)}")
    return [EgressDeny(ip and str(ip), name, int(packets), int(events), _time(last))
            for ip, name, packets, events, last in _rows(store, text, hours)]


def egress_denies_24h(store: Store = None) -> DenyTile:
    """The tile: egress denies of 24 hours by remote address."""
    denies = get_recent_egress_denies(24, store)
    return {"title": "Egress denies (24 h)", "hours": 24, "total": sum(one.packets for one in denies), "by_remote_ip": denies}


def record_egress_event(analysis_id: Optional[str], action: str, remote_ip: Optional[str] = None, remote_port: Optional[int] = None,
                        fqdn_pinned: Optional[str] = None, raw_pkts: int = 1, ts: Optional[datetime.datetime] = None,
                        store: Store = None) -> None:
    """Add an event that weir didn't see itself: action allow, deny or panic; ts: now."""
    if action not in ("allow", "deny", "panic"):
        raise ValueError(f"{action!r} is not allow, deny or panic")
    when = (ts or _now()).astimezone(datetime.timezone.utc)
    values = (analysis_id, _stamp(when), action, remote_ip, remote_port, fqdn_pinned, raw_pkts)
    if _is_folder(store):
        _record(_folder(store), "event", values)
        return
    marks = ", ".join([_mark(store)] * len(values))
    store.cursor().execute(f"INSERT INTO sandbox_egress_event ({_RECORDED}) VALUES ({marks})", values)
    store.commit()


def emit_egress_review_task(task: EgressReviewTask, sink: Optional[Callable[[EgressReviewTask], None]] = None) -> EgressReviewTask:
    """Hand @task to @sink; without one it is a line of JSON in the log weir.egress."""
    if sink:
        sink(task)
    else:
        LOG.warning("%s", json.dumps({"event": "egress.review", **dataclasses.asdict(task)}))
    return task


def check_and_emit_egress_review_tasks(hours: float = 24, threshold: int = 1, store: Store = None,
                                       sink: Optional[Callable[[EgressReviewTask], None]] = None) -> List[EgressReviewTask]:
    """Emit a task for each destination that a sandbox was denied @threshold times or more, once. Return: those.

    A task whose sink raises is emitted again the next time.
    """
    text = ("SELECT coalesce(analysis_id, ''), coalesce(fqdn_pinned, CAST(remote_ip AS TEXT), ''),"
            " sum(coalesce(packets, raw_pkts, 1)), max(ts) FROM sandbox_egress_event"
            f" WHERE action = 'deny' AND ts >= '{_ago(hours)}' GROUP BY 1, 2 HAVING sum(coalesce(packets, raw_pkts, 1)) >= {int(threshold)}"
            " ORDER BY 4")
    emitted = []
    with _opened(store, hours) as db:
        mark = _mark(db)
        db.cursor().execute(_EMITTED)
        for analysis, destination, packets, last in _fetch(db, text):
            known = db.cursor()
            known.execute(f"SELECT 1 FROM sandbox_egress_emitted WHERE analysis_id = {mark} AND destination = {mark}", (analysis, destination))
            if known.fetchone():
                continue
            task = EgressReviewTask(analysis or None, destination.split("/")[0], int(packets), _time(last))
            emitted.append(emit_egress_review_task(task, sink))
            if _is_folder(store):
                _record(_folder(store), "emitted", (analysis, destination))
                continue
            db.cursor().execute(f"INSERT INTO sandbox_egress_emitted VALUES ({mark}, {mark})", (analysis, destination))
            db.commit()
    return emitted


def _is_folder(store: Store) -> bool:
    return store is None or isinstance(store, (str, os.PathLike))


def _mark(db: Any) -> str:
    """How the connection's driver marks values."""
    driver = sys.modules.get(type(db).__module__.split(".")[0])
    return "?" if getattr(driver, "paramstyle", "") == "qmark" else "%s"


@contextlib.contextmanager
def _opened(store: Store, hours: float) -> Iterator[Any]:
    """A connection that has what was denied in the last @hours."""
    if not _is_folder(store):
        yield store
        return
    with contextlib.closing(_copy(_folder(store), "--action", "deny", "--since", max(_ago(hours), _EPOCH))) as db:
        yield db


def _rows(store: Store, text: str, hours: float) -> List[Tuple[Any, ...]]:
    with _opened(store, hours) as db:
        return _fetch(db, text)


def _fetch(db: Any, text: str) -> List[Tuple[Any, ...]]:
    cursor = db.cursor()
    cursor.execute(text)
    return [tuple(row) for row in cursor.fetchall()]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _stamp(when: datetime.datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def _ago(hours: float) -> str:
    return _stamp(_now() - datetime.timedelta(hours=float(hours)))


def _time(value: Any) -> str:
    return _stamp(value.astimezone(datetime.timezone.utc)) if isinstance(value, datetime.datetime) else str(value)
