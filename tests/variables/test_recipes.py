"""Settings that providers of machines publish for their networks: right as they are, so nothing above information."""

from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import Severity
from tests.fleets import fleet
from tests.rules.variables.made import net, rdma, settings, software

RECIPES: dict[str, str] = {
    # GoogleCloudPlatform/container-engine-accelerators: gpudirect-tcpxo/README.md
    "GPUDirect-TCPXO": """
        NCCL_FASTRAK_CTRL_DEV=eth0 NCCL_FASTRAK_IFNAME=eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8 NCCL_SOCKET_IFNAME=eth0
        NCCL_CROSS_NIC=0 NCCL_ALGO=Ring,Tree NCCL_PROTO=Simple NCCL_MIN_NCHANNELS=4 NCCL_TUNER_PLUGIN=libnccl-tuner.so
        NCCL_TUNER_CONFIG_PATH=/usr/local/nvidia/lib64/a3plus_tuner_config.textproto NCCL_DYNAMIC_CHUNK_SIZE=524288
        NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE=/usr/local/nvidia/lib64/a3plus_guest_config.textproto
        NCCL_P2P_NET_CHUNKSIZE=524288 NCCL_P2P_PCI_CHUNKSIZE=524288 NCCL_P2P_NVL_CHUNKSIZE=1048576
        NCCL_FASTRAK_NUM_FLOWS=2 NCCL_FASTRAK_USE_SNAP=1 NCCL_FASTRAK_PLUGIN_ACCEPT_TIMEOUT_MS=600000
        NCCL_FASTRAK_ENABLE_CONTROL_CHANNEL=0 NCCL_BUFFSIZE=8388608 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
        NCCL_NET_GDR_LEVEL=PIX NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING=0 NCCL_FASTRAK_USE_LLCM=1 NCCL_NVLS_ENABLE=0
        NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices NCCL_LIB_DIR=/usr/local/nvidia/lib64 NCCL_DEBUG=WARN
        """,
    # skypilot-org/skypilot: examples/gcp_gpu_direct_tcpx/nccl_tcpx_gcpvm_h100.yaml
    "GPUDirect-TCPX": """
        NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_NCHANNELS=8 NCCL_MIN_NCHANNELS=8 NCCL_SOCKET_IFNAME=eth0
        NCCL_CROSS_NIC=0 NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=1 NCCL_DYNAMIC_CHUNK_SIZE=524288
        NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,eth3,eth4 NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0
        NCCL_GPUDIRECTTCPX_TX_BINDINGS='eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177'
        NCCL_GPUDIRECTTCPX_RX_BINDINGS='eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191'
        NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=50000 NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx
        NCCL_GPUDIRECTTCPX_FORCE_ACK=0 NCCL_GPUDIRECTTCPX_TX_COMPLETION_NANOSLEEP=1000
        NCCL_GPUDIRECTTCPX_PROGRAM_CONNECT_TIMEOUT_MS=30000 NCCL_P2P_PXN_LEVEL=0 NCCL_IGNORE_CPU_AFFINITY=1
        """,
    # GoogleCloudPlatform/PerfKitBenchmarker: perfkitbenchmarker/data/nvidia_hpl/a4.dockerfile
    "gIB": """
        NCCL_TUNER_CONFIG_PATH=/usr/local/gib/configs/tuner_config_a4.txtpb NCCL_LIB_DIR=/usr/local/gib/scripts
        OMPI_MCA_btl=tcp,self OMPI_MCA_mtl=^ofi OMPI_MCA_btl_tcp_if_include=enp0s19 PMIX_MCA_gds=^ds12
        NCCL_SOCKET_IFNAME=enp0s19,enp192s20 NCCL_NET=gIB NCCL_CROSS_NIC=0 NCCL_NET_GDR_LEVEL=PIX
        NCCL_P2P_NET_CHUNKSIZE=131072 NCCL_NVLS_CHUNKSIZE=524288 NCCL_IB_ADAPTIVE_ROUTING=1
        NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_TC=52 NCCL_IB_FIFO_TC=84
        """,
    # mlcommons/training_results: Oracle/benchmarks, config_common.sh of BM.GPU.B200.8
    "OCI": """
        NCCL_NVLS_ENABLE=1 NCCL_GRAPH_REGISTER=0 NCCL_LOCAL_REGISTER=0 PMI_DEBUG=1 OMPI_MCA_pml=ucx OMPI_MCA_btl=^openib
        OMPI_MCA_btl_tcp_if_include=10.224.0.0/12 PMIX_MCA_gds=^ds12 NCCL_SOCKET_NTHREADS=16 NCCL_CUMEM_ENABLE=0
        NCCL_IB_SPLIT_DATA_ON_QPS=0 NCCL_IB_QPS_PER_CONNECTION=1 NCCL_IB_GID_INDEX=3 NCCL_IB_TC=41 NCCL_IB_SL=0
        NCCL_IB_TIMEOUT=22 NCCL_NET_PLUGIN=none NCCL_SOCKET_IFNAME=eth0 NCCL_IGNORE_CPU_AFFINITY=1 RX_QUEUE_LEN=8192
        IB_RX_QUEUE_LEN=8192 UCX_NET_DEVICES=eth0 UCX_TLS=tcp HCOLL_ENABLE_MCAST_ALL=0 coll_hcoll_enable=0
        NCCL_IB_HCA==mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11
        """,
    # Azure: recipes for NDv5 (azhpc-images) as LLM360 and others use them
    "Azure NDv5": """
        OMPI_MCA_coll_hcoll_enable=0 CUDA_DEVICE_ORDER=PCI_BUS_ID NCCL_SOCKET_IFNAME=eth0 UCX_TLS=rc
        UCX_NET_DEVICES=mlx5_ib0:1 NCCL_DEBUG=WARN NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml
        NCCL_IB_PCI_RELAXED_ORDERING=1 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IGNORE_CPU_AFFINITY=1
        NCCL_P2P_NET_CHUNKSIZE=524288 NCCL_PXN_DISABLE=1 NCCL_MIN_NCHANNELS=32 SHARP_SMX_UCX_INTERFACE=mlx5_ib0:1
        SHARP_COLL_ENABLE_SAT=1 SHARP_COLL_LOG_LEVEL=3 SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING=1 NCCL_COLLNET_ENABLE=1
        NCCL_IBEXT_DISABLE=1 OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_plm_rsh_num_concurrent=800 NCCL_NET_GDR_LEVEL=5
        """,
    # coreweave/nccl-tests: slurm; docs.nebius.com/kubernetes/gpu/nccl-test
    "CoreWeave, Nebius": """
        NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=ibp UCX_NET_DEVICES=ibp0:1,ibp1:1,ibp2:1,ibp3:1
        SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING=1 NCCL_COLLNET_ENABLE=0 NCCL_IB_AR_THRESHOLD=0 UCX_VFS_ENABLE=no
        NCCL_NVLS_ENABLE=1 ATTEMPT_CUDA_GDB_CORE_DUMP=0 PMIX_MCA_gds=hash OMPI_MCA_pml=ucx
        UCX_IB_PCI_RELAXED_ORDERING=on
        """,
    # aws-samples/awsome-distributed-training and its EFA cheat sheet; pytorch/torchtitan: multinode_trainer.slurm
    "AWS EFA": """
        FI_PROVIDER=efa FI_EFA_USE_HUGE_PAGE=0 FI_EFA_SET_CUDA_SYNC_MEMOPS=0 FI_EFA_FORK_SAFE=1 FI_EFA_USE_DEVICE_RDMA=1
        FI_EFA_ENABLE_SHM_TRANSFER=0 FI_EFA_TX_MIN_CREDITS=64 FI_LOG_LEVEL=warn NCCL_SOCKET_IFNAME=^docker,lo,veth,eth
        NCCL_BUFFSIZE=2097152 NCCL_TUNER_PLUGIN=/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so OMPI_MCA_pml=^cm,ucx
        NCCL_NET_PLUGIN=/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so OPAL_PREFIX=/opt/amazon/openmpi NCCL_PROTO=simple
        OFI_NCCL_NIC_DUP_CONNS=8 NCCL_NVLSTREE_MAX_CHUNKSIZE=262144 TORCH_NCCL_AVOID_RECORD_STREAMS=1
        """,
    # mlcommons/training_results_v4.0: smc-dc-power, gpt3; NVIDIA/Megatron-LM: functional tests
    "NVIDIA": """
        NVTE_FWD_LAYERNORM_SM_MARGIN=8 NVTE_BWD_LAYERNORM_SM_MARGIN=8 NCCL_MIN_NCHANNELS=4
        CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0 NVTE_UB_SPLIT_RS=0
        NVTE_DP_AMAX_REDUCE_INTERVAL=0
        NVTE_ASYNC_AMAX_REDUCTION=1 NCCL_P2P_NET_CHUNKSIZE=2097152 NCCL_CFG_PATH=/workspace/llm/conf/nccl/custom.yaml
        NCCL_IB_SL=1 NCCL_IB_TIMEOUT=19 NVTE_ALLOW_NONDETERMINISTIC_ALGO=1 NCCL_ALGO=^NVLS NCCL_GRAPH_REGISTER=0
        NCCL_IB_ADDR_RANGE=10.1.0.0/16 NCCL_SOCKET_FAMILY=AF_INET UCX_MAX_RNDV_RAILS=4 UCX_IB_GPU_DIRECT_RDMA=1
        """,
}
"""By provider, each with where it was read."""


def test_what_providers_publish_is_right() -> None:
    wrong: dict[str, list[str]] = {}
    for provider, text in RECIPES.items():
        lines = "".join(f"export {assignment}\n" for assignment in text.split())
        machine = fleet(
            1,
            settings=settings(("job.sbatch", f"#!/bin/bash\n#SBATCH -N 2\n{lines}srun python train.py\n")),
            net={0: net("eth0")},
            rdma={0: rdma("mlx5_0")},
            software={0: software(torch="2.7.1+cu126", nccl="2.26.2")},
        )
        findings, unchecked = judge(machine, load_area("variables"))
        assert unchecked == ()
        wrong[provider] = [f.message for f in findings if f.severity.weight > Severity.INFO.weight]
        wrong[provider] += [f.message for f in findings if f.code == "VAR003"]  # unknown to the table
    assert {provider: found for provider, found in wrong.items() if found} == {}
    assert sum(len(set(text.split())) for text in RECIPES.values()) >= 100
