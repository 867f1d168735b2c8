"""Steps that many remedies share: a command to look with, and what it shows, each written once.

A rule or a signature names them: `RemedyStep(shared="stack")`, `{ shared = "stack" }` in a table.  The explanations
are in `ui_steps.toml` of each language.
"""

from collections.abc import Iterable

from allready.model import HOSTS, PROCESSES, RemedyStep
from allready.text.ui import table, ui

_OF_A_RANK = {
    "find_pid": "{find}",
    "stack": "py-spy dump --pid {pid}",
    "process_state": "ps -o pid,stat,wchan,lstart -p {pid}",
    "let_go_on": "kill -CONT {pid}",
    "open_files": "ls /proc/{pid}/fd | wc -l",
    "loader_workers": "ps -o pid,stat,wchan,cmd --ppid {pid}",
    "killed_by": "dmesg -T | tail -50",
}
"""Name -> the command, for each rank that the finding accuses."""

_OF_A_HOST = {
    "oom_kills": "dmesg -T | grep -iE 'out of memory|killed process'",
    "kernel_log": "dmesg -T | tail -50",
    "xids": "dmesg -T | grep -iE 'xid|nvrm'",
    "link_log": "dmesg -T | grep -iE 'mlx5|infiniband|link'",
    "pcie_log": "dmesg -T | grep -iE 'mlx5|pcie|aer'",
    "efa_log": "dmesg -T | grep -i efa",
    "amd_log": "dmesg -T | grep -iE 'amdgpu|ras|xgmi'",
    "storage_log": "dmesg -T | grep -iE 'nfs|lustre|i/o error'",
    "crash_log": "dmesg -T | grep -i segfault",
    "iommu_log": "dmesg -T | grep -iE 'iommu|dmar'",
    "sandbox_log": "dmesg -T | grep -iE 'apparmor|audit'",
    "memory_errors": "dmesg -T | grep -ciE 'corrected|CE memory'",
    "memory_modules": "edac-util -v",
    "amd_errors": "rocm-smi --showras",
    "amd_topology": "rocm-smi --showtopo",
    "event_log": "ipmitool sel list | tail",
    "temperatures": "ipmitool sdr | grep -iE 'temp|fan'",
    "gpus": "nvidia-smi -L",
    "gpu_use": "nvidia-smi",
    "gpu_ecc": "nvidia-smi -q -d ECC,ROW_REMAPPER",
    "gpu_clocks": "nvidia-smi -q -d PERFORMANCE",
    "gpu_reset": "sudo nvidia-smi -r -i {gpu}",
    "gpu_test": "dcgmi diag -r 3",
    "nvlink_state": "nvidia-smi nvlink -s",
    "nvlink_errors": "nvidia-smi nvlink -e",
    "gpu_topology": "nvidia-smi topo -m",
    "gpu_peers": "nvidia-smi topo -p2p r",
    "fabric_state": "nvidia-smi -q | grep -A3 -i fabric",
    "fabric_manager": "systemctl status nvidia-fabricmanager",
    "driver_version": "cat /proc/driver/nvidia/version",
    "gpu_modules": "lsmod | grep nvidia",
    "peermem": "lsmod | grep peermem",
    "acs": "sudo lspci -vvv | grep ACSCtl",
    "pcie_links": "lspci -vvv | grep -i lnksta",
    "shm": "df -h /dev/shm",
    "shm_files": "ls -la /dev/shm",
    "disks": "df -h",
    "inodes": "df -i",
    "mounts": "mount | grep -E 'nfs|lustre|gpfs|fuse'",
    "memory": "free -g",
    "memory_limit": "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current",
    "process_limit": "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
    "memlock": "ulimit -l",
    "max_files": "ulimit -n",
    "max_processes": "ulimit -u",
    "route": "ip route get {peer}",
    "addresses": "ip -br addr",
    "links": "ip -br link",
    "link_errors": "ip -s link",
    "neighbours": "ip neigh",
    "carrier": "ethtool {device}",
    "pause_frames": "ethtool -S {device} | grep -iE 'pause|discard'",
    "port_open": "nc -vz {peer} {port}",
    "listeners": "ss -ltnp",
    "socket_numbers": "ss -s",
    "port_range": "sysctl net.ipv4.ip_local_port_range",
    "keepalive": "sysctl net.ipv4.tcp_keepalive_time",
    "name_lookup": "getent hosts {host}",
    "adapters": "ibstat",
    "rdma_devices": "ls /sys/class/infiniband",
    "rdma_files": "ls -l /dev/infiniband",
    "rdma_ports": "ibv_devinfo -v",
    "gids": "show_gids",
    "firmware": "mlxfwmanager --query",
    "efa_devices": "fi_info -p efa",
    "outgoing_filter": "sudo nft list ruleset",
    "denials": "sudo ausearch -m avc,seccomp -ts recent",
    "note_senders": "sudo auditctl -a always,exit -F arch=b64 -S kill -S pidfd_send_signal -F a1={signal_number} "
    "-k signal-{signal_number}",
    "noted_senders": "sudo ausearch -i -k signal-{signal_number}",
    "torch_version": "python -c 'import torch; print(torch.__version__)'",
    "torch_archs": "python -c 'import torch; print(torch.cuda.get_arch_list())'",
    "nccl_version": "python -c 'import torch; print(torch.version.cuda, torch.cuda.nccl.version())'",
    "library_path": "echo $LD_LIBRARY_PATH $LD_PRELOAD",
    "visible_gpus": "echo $CUDA_VISIBLE_DEVICES",
}
"""Name -> the command, for each host with an accused rank; every node where none is known."""

_ANYWHERE = {
    "job_record": "sacct -j {job} -o JobID,State,ExitCode,MaxRSS,ReqMem,Start,End,NodeList",
    "pod": "kubectl describe pod {pod}",
    "pods": "kubectl get pods -o wide",
    "pod_events": "kubectl get events --sort-by=.lastTimestamp",
    "last_pod_log": "kubectl logs {pod} --previous",
    "kube_nodes": "kubectl get nodes -o wide",
    "pods_of_nodes": "kubectl describe nodes | grep -A8 Allocated",
    "volume_claims": "kubectl get pvc",
    "queues": "kubectl get podgroup,workload",
    "partitions": "scontrol show partition",
    "explain_variable": "allready env explain {name}",
}
"""Name -> the command, wherever the user is."""

NAMES = frozenset({*_OF_A_RANK, *_OF_A_HOST, *_ANYWHERE})


def written(name: str, language: str = "en") -> RemedyStep:
    """The step `name`; its texts are English where `language` lacks them.

    Raises:
        KeyError: there is no such step.
    """
    if name not in NAMES:
        raise KeyError(f"no shared step {name!r}; src/allready/text/steps.py has all of them")
    text = table(language, "steps").get(name) or table("en", "steps")[name]
    if name in _OF_A_RANK:
        return RemedyStep(explanation=text, command=_OF_A_RANK[name], where="{on}", each=PROCESSES, shared=name)
    if name in _OF_A_HOST:
        everywhere = ui("report.every_node", language)
        command = _OF_A_HOST[name]
        return RemedyStep(
            explanation=text, command=command, where="{on}", each=HOSTS, shared=name, elsewhere=everywhere
        )
    return RemedyStep(explanation=text, command=_ANYWHERE[name], shared=name)


def resolved(steps: Iterable[RemedyStep], language: str = "en") -> tuple[RemedyStep, ...]:
    """The steps with those that are shared written out.

    A command for a process is of use only with its number: how to find it stands before the first such step, and is
    left out for every rank whose number is known.
    """
    found = [written(step.shared, language) if step.shared else step for step in steps]
    first = next((n for n, step in enumerate(found) if step.each == PROCESSES and "{pid}" in step.command), None)
    if first is not None:
        found.insert(first, written("find_pid", language))
    return tuple(found)
