# SPDX-License-Identifier: Apache-2.0
"""What was denied, from SQLite and PostgreSQL alike: both have `sandbox_egress_event` with the same columns.

A store is a state directory (None: weir's own), or a connection of any DB-API driver to the PostgreSQL database that
`weir sidecar` and `weir daemon` copy their events to. What record_egress_event() adds to a state directory is kept beside
weir's own file, in egress.db.
"""
from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import pathlib
import sqlite3
import sys
import urllib.parse
from typing import Any, Callable, Iterator, List, Optional, Tuple, TypedDict, Union

# None or a path: a state directory. Else a DB-API connection.
Store = Any
LOG = logging.getLogger("weir.egress")

_EVENT_COLUMNS = "analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts, layer, protocol, packets, bytes, reason"
# Times as text that sorts as they do; the actions that the table of PostgreSQL has.
_OF_WEIR = """
SELECT nullif(sandbox, ''), strftime('%Y-%m-%dT%H:%M:%fZ', ts / 1000.0, 'unixepoch'),
  CASE action WHEN 1 THEN 'allow' WHEN 2 THEN 'deny' ELSE 'panic' END, remote_ip, remote_port, name, min(packets, 2147483647),
  CASE layer WHEN 1 THEN 'dns' WHEN 2 THEN 'address' WHEN 3 THEN 'name' WHEN 4 THEN 'launch' END,
  CASE protocol WHEN 1 THEN 'icmp' WHEN 6 THEN 'tcp' WHEN 17 THEN 'udp' WHEN 58 THEN 'icmpv6' ELSE CAST(protocol AS TEXT) END,
  packets, bytes, reason FROM weir.event WHERE action IN (1, 2, 3)"""
_RECORDED = """
CREATE TABLE IF NOT EXISTS recorded.egress_event (analysis_id TEXT, ts TEXT NOT NULL, action TEXT NOT NULL
  CHECK (action IN ('allow', 'deny', 'panic')), remote_ip TEXT, remote_port INTEGER, fqdn_pinned TEXT, raw_pkts INTEGER);
CREATE INDEX IF NOT EXISTS recorded.egress_event_ts ON egress_event (ts);
"""
_EMITTED = "CREATE TABLE IF NOT EXISTS sandbox_egress_emitted (analysis_id TEXT NOT NULL, destination TEXT NOT NULL, PRIMARY KEY (analysis_id, destination))"


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
    """A connection that has a state directory's events as `sandbox_egress_event`, to be read."""
    folder = state_directory() if state_dir is None else pathlib.Path(state_dir)
    db = sqlite3.connect("file::memory:", uri=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        db.execute("ATTACH ? AS recorded", (str(folder / "egress.db"),))
        db.executescript(_RECORDED + _EMITTED.replace("EXISTS sandbox", "EXISTS recorded.sandbox"))
        parts = ["SELECT analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts, NULL, NULL, raw_pkts, 0, NULL"
                 " FROM recorded.egress_event"]
        if (folder / "events.db").exists():
            db.execute("ATTACH ? AS weir", (f"file:{urllib.parse.quote(str(folder / 'events.db'))}?mode=ro",))
            parts.append(_OF_WEIR)
        db.execute(f"CREATE TEMP VIEW sandbox_egress_event ({_EVENT_COLUMNS}) AS {' UNION ALL '.join(parts)}")
        db.commit()
        return db
    except BaseException:
        db.close()
        raise


def get_recent_egress_denies(hours: float = 24, store: Store = None, limit: int = 1000) -> List[EgressDeny]:
    """What was denied in the last @hours, by remote address, the most packets first."""
    text = ("SELECT remote_ip, CASE WHEN remote_ip IS NULL THEN fqdn_pinned END, sum(coalesce(packets, raw_pkts, 1)), count(*), max(ts)"
            f" FROM sandbox_egress_event WHERE action = 'deny' AND ts >= '{_ago(hours)}' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT {int(limit)}")
    return [EgressDeny(ip and str(ip), name, int(packets), int(events), _time(last))
            for ip, name, packets, events, last in _rows(store, text)]


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
    columns = "analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts"
    with _opened(store) as (db, mark, own):
        table = "recorded.egress_event" if own else "sandbox_egress_event"
        db.cursor().execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join([mark] * len(values))})", values)
        db.commit()


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
    with _opened(store) as (db, mark, own):
        table = "recorded.sandbox_egress_emitted" if own else "sandbox_egress_emitted"
        if not own:
            db.cursor().execute(_EMITTED)
        for analysis, destination, packets, last in _fetch(db, text):
            known = db.cursor()
            known.execute(f"SELECT 1 FROM {table} WHERE analysis_id = {mark} AND destination = {mark}", (analysis, destination))
            if known.fetchone():
                continue
            task = EgressReviewTask(analysis or None, destination.split("/")[0], int(packets), _time(last))
            emitted.append(emit_egress_review_task(task, sink))
            db.cursor().execute(f"INSERT INTO {table} VALUES ({mark}, {mark})", (analysis, destination))
            db.commit()
    return emitted


@contextlib.contextmanager
def _opened(store: Store) -> Iterator[Tuple[Any, str, bool]]:
    """The connection, how its driver marks values, and whether it is a state directory's."""
    if store is None or isinstance(store, (str, os.PathLike)):
        with contextlib.closing(open_store(store)) as db:
            yield db, "?", True
        return
    driver = sys.modules.get(type(store).__module__.split(".")[0])
    yield store, "?" if getattr(driver, "paramstyle", "") == "qmark" else "%s", False


def _rows(store: Store, text: str) -> List[Tuple[Any, ...]]:
    with _opened(store) as (db, _, _own):
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
