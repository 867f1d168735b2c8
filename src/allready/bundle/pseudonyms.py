"""Host names, users and addresses replaced by others: the same by the same, within one subnet still within one."""

import ipaddress
import re
from collections.abc import Iterable

from allready.patterns import compiled

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?"
_SLURM = r"\bSLURM(?:D_NODENAME|_NODELIST|_JOB_NODELIST|_SUBMIT_HOST|_LAUNCH_NODE_HOSTNAME)"
_USER = r"[A-Za-z_](?:[A-Za-z0-9_.-]{0,30}[A-Za-z0-9_])?"
_SOURCES = "py|pyx|c|cc|cpp|cu|cuh|h|hpp|so|rs|go|js"
_HOSTS = (
    rf"({_NAME}):\d{{1,8}}:\d{{1,8}} \[\d{{1,3}}\] NCCL ",
    rf"(?i:\bhost(?:name)?|\bnode(?:name)?)[\"']?\s{{0,12}}[:=]\s{{0,4}}[\"']?({_NAME})",
    rf"(?i:\bmaster_addr(?:ess)?|\brdzv_endpoint|\bcoordinator_address|{_SLURM})[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?({_NAME})",
    rf"--(?:master[-_]addr|rdzv[-_]endpoint|coordinator[-_]address)[= ]({_NAME})",
    rf"\b(?:tcp|https?|grpc|ssh|nfs)://(?:[^\s/@]{{1,64}}@)?({_NAME})(?=[:/])",
    (
        rf"(?i:\b(?:to|from|peer|server|endpoint|reach)\b)[ =:]{{1,3}}(?![\w./-]{{1,250}}\.(?:{_SOURCES})\b)"
        rf"(?:(?=[A-Za-z_]*[\d.-])({_NAME}):\d{{4,5}}\b|\[({_NAME})\]:\d{{2,5}}\b|\(({_NAME}), ?\d{{2,5}}\))"
    ),
    rf"(?<![\w.%+/-]){_USER}@(?!sha\d)(?=[A-Za-z_]*[\d.-])({_NAME})(?=[\s:;,'\"]|$)",
    rf"\bsrun: error: ({_NAME}): task",
    rf"\bSTEP \S{{1,40}} ON ({_NAME})",
    rf"(?m:^)[A-Z][a-z]{{2}}\s{{1,2}}\d{{1,2}} [\d:]{{8}} ({_NAME}) (?:kernel|systemd|slurm\w*|sshd)\b",
    rf"(?m:^)\d{{4}}-\d\d-\d\dT\S{{8,30}} ({_NAME}) (?:kernel|systemd|slurm\w*|sshd)\b",
)
"""Where logs name a host."""
_LIST = (
    rf"(?:{_SLURM}|(?i:\bnodelist)|--nodelist|"
    rf"(?:\b(?:srun|sbatch|salloc|squeue|sinfo)|#SBATCH)\b[^\n]{{0,400}}?\s-w)[= ][\"']?([\w.,\[\]-]{{1,4096}})"
)
"""gpu[01-08],login1, as Slurm writes them."""
_RANGE = r"\b([A-Za-z][A-Za-z0-9_-]{0,60}?)(\d*)\[(\d{1,8}(?:[-,]\d{1,8}){0,64})\]"
"""gpu[01-08], as Slurm writes them."""
_HOST = "|".join(f"(?:{pattern})" for pattern in _HOSTS)
_OF_USER = (
    r"/(?:home|Users)/|(?i:\b(?:user(?:name|id)?|logname|sudo_user|login|owner))[\"']?[ \t]{0,3}[=: ][ \t]{0,3}[\"']?"
    r"|\b(?:uid|gid)=\d{1,9}\("
)
"""What stands in front of a user's name."""
_USERS = (
    rf"/(?:home|Users)/({_USER})(?=[/\s\"':,]|$)|\b(?:USER|LOGNAME|SUDO_USER|USERNAME|SLURM_JOB_USER)=[\"']?({_USER})"
    rf"|\b(?:UserId=|uid=\d{{1,9}}\()({_USER})|(?i:\bfor (?:invalid )?user )({_USER})"
    rf"|(?<![\w.%+/-])({_USER})@(?=[A-Za-z])"
)
"""Where logs name a user."""
_MANY = 4096
_NOT_HOSTS = frozenset({
    "localhost", "localhost.localdomain", "localdomain", "none", "null", "unknown", "true", "false", "host", "hostname",
    "node", "name", "rank", "local", "auto", "default", "error", "root", "user", "users", "home", "admin", "ubuntu",
    "git", "runner", "nobody",
    "github.com", "gitlab.com", "pytorch.org", "huggingface.co", "wandb.ai", "api.wandb.ai", "docs.nvidia.com",
    "nvcr.io", "gmail.com", "and", "the", "not", "with", "from", "all", "any",
})  # fmt: skip

_IPV4 = r"(?<![\d.])((?:\d{1,3}\.){3}\d{1,3})(?![\d.]*\d)(?:/(\d{1,2})(?!\d))?"
_IPV6 = r"(?<![0-9A-Za-z:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![0-9A-Za-z:])(?:/(\d{1,3})(?!\d))?"
_MAC = r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"
_KEPT_V4 = tuple(map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")))
_NETS_V4 = int(ipaddress.IPv4Address("198.18.0.0"))  # for tests of networks: no machine has these
_NETS_V6 = int(ipaddress.IPv6Address("2001:db8::"))  # for documents
_LINK_LOCAL = ipaddress.IPv6Network("fe80::/10")


class Pseudonyms:
    """Gives every name and address that it meets another one, and keeps to it."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), *, addresses: bool = True) -> None:
        self._with_addresses = addresses
        self._names: dict[str, str] = {}
        self._nets: dict[tuple[int, int], int] = {}
        self._interfaces: dict[int, int] = {}
        self._macs: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._logged: dict[str, str] = {}  # users of logs: only where one stands for a user, for `train` may be one
        self._of_user: re.Pattern[str] | None = None
        for host in hosts:
            self._add_host(host, least=2)
        for user in users:
            if _is_name(user):
                self._names.setdefault(user, self._next_user())

    def learn_hosts(self, text: str) -> None:
        """Take the host names that a text has, before anything is replaced."""
        for match in compiled(_HOST).finditer(text):
            self._add_host(match[match.lastindex or 0])
        for match in compiled(_LIST).finditer(text):
            for name in re.split(r",(?![^\[]*\])", match[1]):
                if "[" not in name:
                    self._add_host(name)
        for match in compiled(_USERS).finditer(text):
            user = match[match.lastindex or 0]
            is_new = user not in self._names and user not in self._logged
            if is_new and _is_name(user) and len(self._logged) < _MANY:
                self._logged[user] = self._next_user()
                self._of_user = None
        for match in compiled(_RANGE).finditer(text):
            if any(re.fullmatch(re.escape(match[1] + match[2]) + r"\d+(?:\..*)?", name) for name in self._names):
                for number in _numbers(match[3]):
                    self._add_host(f"{match[1]}{match[2]}{number}")

    def _next_user(self) -> str:
        return f"user{1 + sum(v.startswith('user') for v in (*self._names.values(), *self._logged.values()))}"

    def _add_host(self, name: str, *, least: int = 3) -> None:
        if not _is_name(name, least) or len(self._names) >= _MANY:
            return
        short, _, domain = name.partition(".")
        for part in (short, *((name,) if domain else ())):
            if _is_name(part, least) and part not in self._names:
                number = 1 + sum(v.startswith("host") and "." not in v for v in self._names.values())
                own = self._names.get(short, f"host{number}")
                self._names[part] = own if part == short else f"{own}.example"
                self._pattern = None

    def hide(self, text: str) -> str:
        """The text with others in their place; all that is alike stays alike."""
        if self._logged:
            if self._of_user is None:
                users = _either(self._logged)
                self._of_user = re.compile(
                    rf"(?P<before>{_OF_USER}|/)(?P<user>{users})(?![A-Za-z0-9_.-]{{0,30}}[A-Za-z0-9_])"
                    rf"|(?<![\w.%+-])(?P<at>{users})(?=@)"
                )
            text = self._of_user.sub(lambda m: (m["before"] or "") + self._logged[m["user"] or m["at"]], text)
        if self._names:
            if self._pattern is None:
                words = [_as_word(name) for name in sorted(self._names, key=lambda name: (-len(name), name))]
                self._pattern = re.compile("|".join(words))
            text = self._pattern.sub(lambda match: self._names[match[0]], text)
        if not self._with_addresses:
            return text
        text = compiled(_MAC).sub(self._mac, text)
        text = compiled(_IPV4).sub(self._ipv4, text)
        return compiled(_IPV6).sub(self._ipv6, text)

    def _mac(self, match: re.Match[str]) -> str:
        mac = match[0].lower()
        if mac in {"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"}:
            return match[0]
        number = len(self._macs) + 1
        new = ":".join(("02", *(f"{byte:02x}" for byte in number.to_bytes(5, "big"))))
        return self._macs.setdefault(mac, new)

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[1])
        except ValueError:  # the number of a version
            return match[0]
        if any(address in net for net in _KEPT_V4):
            return match[0]
        number = self._nets.setdefault((4, int(address) >> 8), sum(kind == 4 for kind, _ in self._nets))
        new = ipaddress.IPv4Address((_NETS_V4 + (number << 8) + (int(address) & 255)) & 0xFFFFFFFF)
        return _with_prefix(address, new, match[2])

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[1])
        except ValueError:  # a time, a name of C++
            return match[0]
        is_short = match[1].count(":") < 3 and not match[1].lower().startswith(("fe80", "fd", "fc", "2"))
        if address.is_loopback or address.is_unspecified or address.is_multicast or is_short:
            return match[0]
        low = int(address) & ((1 << 64) - 1)
        low = self._interfaces.setdefault(low, len(self._interfaces) + 1) if low else 0
        if address in _LINK_LOCAL:
            base = (int(address) >> 64) << 64
        else:
            number = self._nets.setdefault((6, int(address) >> 64), 1 + sum(kind == 6 for kind, _ in self._nets))
            base = _NETS_V6 + (number << 64)
        return _with_prefix(address, ipaddress.IPv6Address(base + low), match[2])


_SHORT_LETTERS = 4


def _as_word(name: str) -> str:
    """The pattern of a name in a text: gpu7 is in gpu7-ib0, but a machine called `vm` is not in total-vm."""
    if name.isalpha() and len(name) <= _SHORT_LETTERS:
        return rf"(?<![\w-]){name}(?![\w-]|\.[A-Za-z])"
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"


def _either(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))


def _is_name(name: str, least: int = 3) -> bool:
    """Whether to replace it: no word that logs are full of, and no address, which keeps its own form."""
    if len(name) < least or name.lower() in _NOT_HOSTS or not re.search(r"[A-Za-z]", name):
        return False
    return not re.fullmatch(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*", name)


def _numbers(text: str) -> Iterable[str]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        for number in range(int(low), min(int(high or low), int(low) + 1024) + 1):
            yield str(number).zfill(len(low))


def _with_prefix(
    old: ipaddress.IPv4Address | ipaddress.IPv6Address,
    new: ipaddress.IPv4Address | ipaddress.IPv6Address,
    prefix: str | None,
) -> str:
    """The new address with the old one's prefix length; the address of a network stays one."""
    if prefix is None:
        return str(new)
    length = int(prefix)
    if length > old.max_prefixlen:
        return f"{new}/{prefix}"
    mask = (1 << (old.max_prefixlen - length)) - 1
    number = int(new) & ~mask if not int(old) & mask else int(new)
    return f"{type(new)(number)}/{prefix}"
