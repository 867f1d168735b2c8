"""Carries out netlink operations inside a lab's namespaces.  Started by the lab as a process of its own:

    nsenter (into the hub's user and net namespace) python -P netlink.py < plan.json > answer.json

It imports nothing of allready, so that it starts fast.  It is a process, not a thread, because only a process with a
single thread may enter a user namespace.  The plan: {"namespaces": {"-1": PID, "0": PID, ...}, "ops": [...]}; the
answer: {"done": true, "skipped": [...]} or {"error": "..."}.
"""

import ctypes
import fcntl
import ipaddress
import json
import os
import socket
import struct
import sys
from typing import Any

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUTS = 0x04000000
_SIOCETHTOOL = 0x8946
_ETHTOOL_STSO = 0x1F  # all of TCP segmentation offload
_TC_H_ROOT = 0xFFFFFFFF
_IFA_F_NODAD = 0x02  # usable at once, without a second of duplicate address detection


def _enter(pid: int, kind: str, flag: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
    try:
        if libc.setns(descriptor, flag) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns {kind} of {pid}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def _packet_sizes(name: str) -> None:
    """Segment TCP before the cable, not after it."""
    value = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_STSO, 0))
    request = struct.pack("16sP", name.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, request)


def _do(ip: Any, op: dict[str, Any], pids: dict[int, int]) -> None:
    kind, name = op["op"], op["name"]
    if kind == "hostname":
        _enter(pids[op["at"]], "uts", _CLONE_NEWUTS)
        socket.sethostname(name)
        return
    if kind == "packet_sizes":
        _packet_sizes(name)
        return
    if kind == "bridge":
        ip.link("add", ifname=name, kind="bridge", mtu=op["mtu_bytes"], state="up")
        return
    if kind == "veth":
        peer = {"ifname": op["peer"], "net_ns_pid": pids[op["peer_at"]], "mtu": op["mtu_bytes"]}
        ip.link("add", ifname=name, kind="veth", mtu=op["mtu_bytes"], peer=peer)
        if "bridge" in op:
            ip.link("set", index=_index(ip, name), master=_index(ip, op["bridge"]))
        return
    index = _index(ip, name)
    if kind in {"up", "down"}:
        ip.link("set", index=index, state=kind)
    elif kind == "mtu":
        ip.link("set", index=index, mtu=op["mtu_bytes"])
    elif kind == "delete":
        ip.link("del", index=index)
    elif kind == "address":
        interface = ipaddress.ip_interface(op["address"])
        extra = {"flags": _IFA_F_NODAD} if interface.version == 6 else {"broadcast": str(interface.network[-1])}
        ip.addr("add", index=index, address=str(interface.ip), prefixlen=interface.network.prefixlen, **extra)
    elif kind == "rate":
        bytes_per_s = op["bit_per_s"] // 8
        ip.tc("add", "tbf", index, 0x10000, rate=bytes_per_s, burst=op["burst_bytes"], limit=op["queue_bytes"])
    elif kind == "no_rate":
        ip.tc("del", index=index, handle=0x10000, parent=_TC_H_ROOT)
    else:
        raise ValueError(f"unknown operation {kind!r}")


def _index(ip: Any, name: str) -> int:
    found = ip.link_lookup(ifname=name)
    if not found:
        raise OSError(f"there is no interface {name}")
    return int(found[0])


def _carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    pids = {int(at): pid for at, pid in plan["namespaces"].items()}
    skipped: list[str] = []
    at, ip = None, None
    try:
        for op in plan["ops"]:
            try:
                if op["at"] != at:
                    if ip is not None:
                        ip.close()
                    ip, at = None, op["at"]
                    _enter(pids[at], "net", _CLONE_NEWNET)
                    ip = IPRoute()
                _do(ip, op, pids)
            except (NetlinkError, OSError, ValueError, KeyError) as error:
                place = "the hub" if op["at"] < 0 else f"node{op['at']}"
                text = f"{op['op']} {op['name']} in {place}: {error}"
                if not op.get("optional"):
                    return {"error": text}
                skipped.append(text)
    finally:
        if ip is not None:
            ip.close()
    return {"done": True, "skipped": skipped}


def main() -> int:
    """Read the plan, carry it out, answer.  Exit code 0 when everything was done."""
    try:
        plan = json.load(sys.stdin)
    except ValueError:  # the process that started us is gone
        return 1
    try:
        answer = _carry_out(plan)
    except ImportError as error:
        answer = {"error": f"pyroute2 is missing ({error}); install it with: pip install pyroute2"}
    json.dump(answer, sys.stdout)
    return 0 if "error" not in answer else 1


if __name__ == "__main__":
    sys.exit(main())
