"""Where the nodes meet, from torchrun's rendezvous flags."""

from collections.abc import Mapping

from allready.errors import UsageError
from allready.launch.flag_kinds import seconds
from allready.launch.host_lists import split_endpoint
from allready.launch.option_sources import OptionSources

BACKENDS = ("static", "c10d")
_TRUE, _FALSE = {"1", "true", "t", "yes", "y"}, {"0", "false", "f", "no", "n"}  # torch's RendezvousParameters
_UNDERSTOOD = {"is_host", "join_timeout", "timeout", "rank"}


class Rendezvous:
    """`addr` and `port` as given by hand, None where no option gives them.

    `is_agreed`: torchrun's c10d, where node ranks are not given but agreed.  `is_host`: rdzv_conf's word on whether
    this node is the master.
    """

    def __init__(self, options: OptionSources) -> None:
        """Raises UsageError: a backend that cannot work, an endpoint or a setting that cannot be read."""
        self.standalone = bool(options.value("standalone"))
        backend = "c10d" if self.standalone else options.value("rdzv_backend") or "static"
        if backend not in BACKENDS:
            raise UsageError(
                "{where} {backend}: nodes meet at a port of node 0 here, without another server; write "
                "--rdzv-backend c10d --rdzv-endpoint HOST:PORT (HOST one of the nodes), or --master-addr HOST",
                where=options.where("rdzv_backend"),
                backend=backend,
            )
        conf: dict[str, str] = dict(options.value("rdzv_conf") or {})
        self.is_agreed = backend == "c10d" and not self.standalone
        self.is_host = _truth(conf, "is_host")
        self.wait_s = _wait(conf)
        self.addr: str | None = options.by_hand("master_addr")
        self.port: int | None = options.by_hand("master_port")
        endpoint = options.by_hand("rdzv_endpoint") or ("" if self.addr else options.filed("rdzv_endpoint"))
        if self.standalone:
            for dest in ("rdzv_endpoint", "rdzv_backend", "master_addr", "master_port"):
                if options.by_hand(dest) is not None:
                    options.note("standalone_ignores", flag=options.where(dest))
            self.addr = self.port = None
        elif endpoint:  # torchrun: it wins over --master-addr, with every backend
            if self.addr is not None:
                options.note(
                    "endpoint_wins", endpoint=options.where("rdzv_endpoint"), other=options.where("master_addr")
                )
            self.addr, port = split_endpoint(endpoint, options.where("rdzv_endpoint"))
            self.port = self.port if port is None else port
            options.sources["master_addr"] = options.where("rdzv_endpoint")
            if port is not None:
                options.sources["master_port"] = options.where("rdzv_endpoint")
        if self.addr:
            self.addr = self.addr.strip("[]")
        unknown = sorted(set(conf) - _UNDERSTOOD)
        if unknown:
            options.note("rdzv_conf_unused", keys=", ".join(unknown))


def _truth(conf: Mapping[str, str], key: str) -> bool | None:
    text = conf.get(key, "").lower()
    if text and text not in _TRUE | _FALSE:
        raise UsageError("--rdzv-conf {key}={text}: write {key}=1 or {key}=0", key=key, text=text)
    return text in _TRUE if text else None


def _wait(conf: Mapping[str, str]) -> float | None:
    text = conf.get("join_timeout") or conf.get("timeout")
    try:
        return seconds(text) if text and text != "-1" else None
    except ValueError as error:
        raise UsageError("--rdzv-conf: {error}", error=error) from None
