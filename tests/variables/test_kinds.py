"""Kinds of files beside the usual ones: what each assigns for the programs that it starts."""

from allready.model import Slip
from allready.variables.sources.read import read_text

FILES: tuple[tuple[str, str, dict[str, str | None]], ...] = (
    (
        "Dockerfile",
        (
            "ARG V=1\n"
            "ENV NCCL_DEBUG=INFO \\\n"
            '    NCCL_IB_HCA="mlx5_0,mlx5_1" \\\n'
            " # comment in the middle\n"
            "    NCCL_SOCKET_IFNAME='^docker,lo'\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "^docker,lo"},
    ),
    (
        "Dockerfile",
        ("FROM x\nENV NCCL_DEBUG WARN extra words\nENV OMP_NUM_THREADS 4\n"),
        {"NCCL_DEBUG": "WARN extra words", "OMP_NUM_THREADS": "4"},
    ),
    (
        "Dockerfile",
        ("# escape=`\nFROM x\nENV NCCL_DEBUG=WARN `\n    NCCL_IB_TIMEOUT=22\n"),
        {"NCCL_DEBUG": "WARN", "NCCL_IB_TIMEOUT": "22"},
    ),
    (
        "Dockerfile",
        ("FROM x\nARG LEVEL=INFO\nENV NCCL_DEBUG=$LEVEL NCCL_TIMEOUT=${T:-9}\n"),
        {"NCCL_DEBUG": None, "NCCL_TIMEOUT": None},
    ),
    ("Dockerfile.gpu", ("from x\nenv nccl_debug=info NCCL_DEBUG=INFO\n"), {"NCCL_DEBUG": "INFO"}),
    (
        "job.sbatch",
        ("#!/bin/bash\n#SBATCH --export=ALL,NCCL_DEBUG=INFO,NCCL_TIMEOUT=1800\nsrun python t.py\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "1800"},
    ),
    (
        "job.sbatch",
        ("#!/bin/bash\n#SBATCH --export=NONE\nsrun --export=ALL,NCCL_TIMEOUT=30,NCCL_IB_DISABLE=1 python t.py\n"),
        {"NCCL_TIMEOUT": "30", "NCCL_IB_DISABLE": "1"},
    ),
    ("job.sbatch", ("#!/bin/bash\nsrun -N2 --export ALL,NCCL_TIMEOUT=30 python t.py\n"), {"NCCL_TIMEOUT": "30"}),
    (
        "run.sh",
        "mpirun -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -np 8 ./all_reduce_perf\n",
        {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0"},
    ),
    (
        "run.sh",
        "mpiexec -genv NCCL_DEBUG INFO -env NCCL_TIMEOUT 4 -n 8 python t.py\n",
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "4"},
    ),
    (
        "run.sh",
        "docker run --gpus all -e NCCL_DEBUG=INFO --env NCCL_TIMEOUT=5 --env=NCCL_IB_DISABLE=1 image\n",
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_IB_DISABLE": "1"},
    ),
    (
        "run.sh",
        ("export -n NCCL_DEBUG\nexport NCCL_TIMEOUT=5; export NCCL_IB_TIMEOUT=22 NCCL_ALGO=Ring\n"),
        {"NCCL_TIMEOUT": "5", "NCCL_IB_TIMEOUT": "22", "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        (
            "declare -x NCCL_TIMEOUT=5\n"
            "typeset -x NCCL_ALGO='Ring'\n"
            "readonly NCCL_X=1\n"
            "set -a\n"
            "NCCL_DEBUG=INFO\n"
            "set +a\n"
            "NCCL_PROTO=LL\n"
        ),
        {"NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"},
    ),
    (
        "run.sh",
        ("cat > env.sh <<'EOF'\nexport NCCL_TIMEOUT=9\nEOF\nexport NCCL_DEBUG=WARN\n"),
        {"NCCL_DEBUG": "WARN", "NCCL_TIMEOUT": "9"},
    ),
    (
        "run.sh",
        ("cat <<EOF\n  export NCCL_TIMEOUT=9\nEOF\ncat <<-'X' > f\n\tNCCL_IB_DISABLE=1\n\tX\nexport NCCL_DEBUG=WARN\n"),
        {"NCCL_DEBUG": "WARN"},
    ),
    (
        "run.sh",
        ("export NCCL_DEBUG=\"IN\"FO NCCL_ALGO=Ri\\\nng # c\nexport NCCL_IB_HCA=$'mlx5_0'\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5_0"},
    ),
    (
        "run.sh",
        ('if true; then export NCCL_DEBUG=INFO; fi\n[ -z "$X" ] && export NCCL_ALGO=Tree || export NCCL_ALGO=Ring\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        ('export NCCL_DEBUG=${NCCL_DEBUG:-INFO}\n: ${NCCL_TIMEOUT:=5}\n: "${NCCL_ALGO:=Ring}"; export NCCL_ALGO\n'),
        {"NCCL_DEBUG": None, "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        ("env NCCL_DEBUG=INFO NCCL_TIMEOUT=1 torchrun t.py\nenv -u NCCL_ALGO NCCL_PROTO=LL python x\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "1", "NCCL_PROTO": "LL"},
    ),
    ("run.sh", "FOO=1 NCCL_DEBUG=INFO torchrun t.py; unset NCCL_IB_DISABLE\n", {"NCCL_DEBUG": "INFO"}),
    (
        "run.sh",
        (
            "ssh node1 'export NCCL_TIMEOUT=3; torchrun t.py'\n"
            'pdsh -w a,b "NCCL_DEBUG=INFO python x"\n'
            "bash -c 'export NCCL_ALGO=Ring'\n"
        ),
        {"NCCL_TIMEOUT": "3", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"},
    ),
    ("run.sh", "echo 'export NCCL_TIMEOUT=3' >> ~/.bashrc\n", {"NCCL_TIMEOUT": "3"}),
    ("run.sh", "echo 'export NCCL_TIMEOUT=3' >> notes.txt; cat <<EOF > log.txt\nNCCL_TIMEOUT=4\nEOF\n", {}),
    ("run.sh", "sbatch <<'EOF'\n#!/bin/bash\nexport NCCL_TIMEOUT=5\nEOF\n", {"NCCL_TIMEOUT": "5"}),
    ("run.sh", "python - <<PY\nimport os\nos.environ['NCCL_TIMEOUT'] = '6'\nPY\n", {"NCCL_TIMEOUT": "6"}),
    (
        "run.sh",
        'echo NCCL_X; docker run -eNCCL_TIMEOUT=7 x; eval "export NCCL_DEBUG=WARN"; x=`NCCL_ALGO=Ring y`\n',
        {"NCCL_TIMEOUT": "7", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        "ssh n2 export NCCL_TIMEOUT=8 \\; y\nconda env config vars set NCCL_DEBUG=WARN\nC='env NCCL_ALGO=Ring p'\n",
        {"NCCL_TIMEOUT": "8", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"},
    ),
    (
        "Dockerfile",
        "FROM x\nCOPY <<EOF /etc/nccl.conf\nNCCL_TIMEOUT=9\nEOF\nONBUILD ENV NCCL_DEBUG=WARN\n",
        {"NCCL_TIMEOUT": "9", "NCCL_DEBUG": "WARN"},
    ),
    ("x.yaml", "apiVersion: v1\nkind: Secret\ndata: {NCCL_TIMEOUT: MTgwMA==}\n", {"NCCL_TIMEOUT": "1800"}),
    (
        "job.csh",
        (
            "#!/bin/csh\n"
            "setenv NCCL_DEBUG INFO\n"
            'setenv NCCL_SOCKET_IFNAME "^lo,docker0"\n'
            "setenv NCCL_TIMEOUT 5; setenv NCCL_ALGO Ring\n"
            "set x = 1\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "^lo,docker0", "NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring"},
    ),
    ("env.tcsh", "setenv NCCL_DEBUG INFO\n", {"NCCL_DEBUG": "INFO"}),
    (
        "env.fish",
        (
            "set -x NCCL_DEBUG INFO\n"
            "set -gx NCCL_TIMEOUT 5\n"
            "set --export NCCL_ALGO Ring\n"
            "set -lx NCCL_PROTO 'LL'\n"
            "set NCCL_IB_HCA mlx5_0\n"
            "set -Ux NCCL_IB_TIMEOUT 22\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_IB_TIMEOUT": "22"},
    ),
    (
        "train.service",
        (
            "[Service]\n"
            "Environment=NCCL_DEBUG=INFO \"NCCL_TIMEOUT=5\" 'NCCL_ALGO=Ring'\n"
            'Environment="NCCL_IB_HCA=mlx5_0 mlx5_1"\n'
            "EnvironmentFile=/etc/x\n"
            "ExecStart=/usr/bin/env NCCL_PROTO=LL python t.py\n"
        ),
        {
            "NCCL_DEBUG": "INFO",
            "NCCL_TIMEOUT": "5",
            "NCCL_ALGO": "Ring",
            "NCCL_IB_HCA": "mlx5_0 mlx5_1",
            "NCCL_PROTO": "LL",
        },
    ),
    ("override.conf", ("[Service]\nEnvironment=NCCL_TIMEOUT=5\n"), {"NCCL_TIMEOUT": "5"}),
    (
        "docker-compose.yml",
        (
            "services:\n"
            "  t:\n"
            "    image: x\n"
            "    environment:\n"
            "      - NCCL_DEBUG=INFO\n"
            "      - NCCL_TIMEOUT\n"
            '      - "NCCL_ALGO=Ring"\n'
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"},
    ),
    (
        "compose.yaml",
        (
            "x-env: &e\n"
            "  NCCL_DEBUG: INFO\n"
            "  NCCL_IB_TIMEOUT: 22\n"
            "services:\n"
            "  a:\n"
            "    environment:\n"
            "      <<: *e\n"
            "      NCCL_TIMEOUT: '5'\n"
            "  b:\n"
            "    environment: *e\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_IB_TIMEOUT": "22", "NCCL_TIMEOUT": "5"},
    ),
    (
        "pod.yaml",
        (
            "apiVersion: v1\n"
            "kind: Pod\n"
            "spec:\n"
            "  initContainers:\n"
            "  - name: i\n"
            '    env: [{name: NCCL_TIMEOUT, value: "3"}]\n'
            "  containers:\n"
            "  - name: a\n"
            "    env:\n"
            "    - name: NCCL_DEBUG\n"
            "      value: INFO\n"
            "    - name: POD_IP\n"
            "      valueFrom: {fieldRef: {fieldPath: status.podIP}}\n"
            "    - {name: NCCL_IB_HCA, valueFrom: {configMapKeyRef: {name: c, key: k}}}\n"
            "  - name: b\n"
            "    env:\n"
            "    - name: NCCL_ALGO\n"
            "      value: Ring\n"
            "    command: ['bash','-c','export NCCL_PROTO=LL; torchrun t.py']\n"
        ),
        {"NCCL_TIMEOUT": "3", "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": None, "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    ),
    (
        "cm.yaml",
        ('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nccl}\ndata:\n  NCCL_DEBUG: INFO\n  NCCL_TIMEOUT: "5"\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "cm2.yaml",
        (
            "apiVersion: v1\n"
            "kind: ConfigMap\n"
            "metadata: {name: nccl}\n"
            "data:\n"
            "  nccl.env: |\n"
            "    NCCL_DEBUG=INFO\n"
            "    NCCL_TIMEOUT=5\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    ("secret.yaml", ("apiVersion: v1\nkind: Secret\nstringData:\n  NCCL_TIMEOUT: '5'\n"), {"NCCL_TIMEOUT": "5"}),
    (
        "list.yaml",
        ("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  data:\n    NCCL_TIMEOUT: '5'\n"),
        {"NCCL_TIMEOUT": "5"},
    ),
    (
        "acc.yaml",
        (
            "compute_environment: LOCAL_MACHINE\n"
            "distributed_type: MULTI_GPU\n"
            "num_processes: 8\n"
            "env:\n"
            "  NCCL_DEBUG: INFO\n"
        ),
        {"NCCL_DEBUG": "INFO"},
    ),
    (
        "acc2.yaml",
        ("compute_environment: AMAZON_SAGEMAKER\nenvironment:\n  NCCL_TIMEOUT: '5'\n"),
        {"NCCL_TIMEOUT": "5"},
    ),
    (
        ".deepspeed_env",
        ("NCCL_DEBUG=INFO\nNCCL_TIMEOUT=5\nLD_LIBRARY_PATH=/usr\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    ("hostfile", ("worker-1 slots=8\nworker-2 slots=8\n"), {}),
    (
        "skypilot.yaml",
        ("envs:\n  NCCL_DEBUG: INFO\nrun: |\n  export NCCL_TIMEOUT=5\n  torchrun t.py\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "ray.yaml",
        ("runtime_env:\n  env_vars:\n    NCCL_DEBUG: INFO\n    NCCL_TIMEOUT: '5'\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    ("ray.json", '{"runtime_env": {"env_vars": {"NCCL_DEBUG": "INFO"}}}', {"NCCL_DEBUG": "INFO"}),
    ("launch.json", '{"configurations":[{"name":"x","env":{"NCCL_DEBUG":"INFO"}}]}', {"NCCL_DEBUG": "INFO"}),
    (
        "devcontainer.json",
        ('{\n // comment\n "containerEnv": {"NCCL_DEBUG":"INFO"},\n "remoteEnv": {"NCCL_TIMEOUT":"5"}\n}'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    ("values.yaml", ("trainer:\n  extraEnv:\n  - name: NCCL_DEBUG\n    value: INFO\n"), {"NCCL_DEBUG": "INFO"}),
    (
        "train.py",
        (
            "import os\n"
            "os.environ['NCCL_DEBUG']='INFO'\n"
            "os.environ.setdefault('NCCL_TIMEOUT','5')\n"
            "os.environ.update({'NCCL_ALGO':'Ring'}, NCCL_PROTO='LL')\n"
            "os.putenv('NCCL_IB_TIMEOUT','22')\n"
            "os.environ|={'NCCL_IB_DISABLE':'1'}\n"
        ),
        {
            "NCCL_DEBUG": "INFO",
            "NCCL_TIMEOUT": "5",
            "NCCL_ALGO": "Ring",
            "NCCL_PROTO": "LL",
            "NCCL_IB_TIMEOUT": "22",
            "NCCL_IB_DISABLE": "1",
        },
    ),
    (
        "train.py",
        (
            "from os import environ as e\n"
            "import os as o\n"
            "e['NCCL_DEBUG']='INFO'\n"
            "o.environ['NCCL_TIMEOUT']=str(5)\n"
            "import subprocess\n"
            "subprocess.run(['x'], env={**o.environ,'NCCL_ALGO':'Ring'})\n"
        ),
        {"NCCL_TIMEOUT": None, "NCCL_ALGO": "Ring"},
    ),
    (
        "env.txt",
        ("NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME==eth0\nPATH=/bin\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=eth0"},
    ),
    ("environment", 'NCCL_DEBUG="INFO"\n', {"NCCL_DEBUG": "INFO"}),
    (
        "modulefile",
        ("#%Module1.0\nsetenv NCCL_DEBUG INFO\nsetenv NCCL_TIMEOUT 5\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "nccl.lua",
        ('setenv("NCCL_DEBUG","INFO")\npushenv("NCCL_TIMEOUT", "5")\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "job.pbs",
        ("#PBS -l select=2\n#PBS -v NCCL_DEBUG=INFO,NCCL_TIMEOUT=5\nmpiexec python t.py\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "job.lsf",
        ('#BSUB -env "all, NCCL_DEBUG=INFO, NCCL_TIMEOUT=5"\njsrun -E NCCL_ALGO=Ring python t.py\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring"},
    ),
    ("job.sh", ("#$ -v NCCL_TIMEOUT=5\nqsub x\nexport NCCL_DEBUG=INFO\n"), {"NCCL_TIMEOUT": "5", "NCCL_DEBUG": "INFO"}),
    (
        "Makefile",
        ("export NCCL_DEBUG=INFO\ntrain:\n\tNCCL_TIMEOUT=5 torchrun t.py\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "flux.sh",
        "flux run --env=NCCL_DEBUG=INFO --env NCCL_TIMEOUT=5 python t.py\n",
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "app.def",
        ("Bootstrap: docker\nFrom: x\n%environment\n    export NCCL_TIMEOUT=5\n%post\n    apt x\n"),
        {"NCCL_TIMEOUT": "5"},
    ),
    (
        "app.sh",
        (
            "apptainer exec --nv --env NCCL_DEBUG=INFO,NCCL_TIMEOUT=5 x.sif python t.py\n"
            "APPTAINERENV_NCCL_ALGO=Ring\n"
            "export SINGULARITYENV_NCCL_PROTO=LL\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_PROTO": "LL"},
    ),
    ("config.toml", ('[env]\nNCCL_DEBUG = "INFO"\nNCCL_TIMEOUT = "5"\n'), {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"}),
    (
        "hydra.yaml",
        ('hydra:\n  job:\n    env_set:\n      NCCL_DEBUG: INFO\n  launcher:\n    setup: ["export NCCL_TIMEOUT=5"]\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "windows.sh",
        ("export NCCL_DEBUG=INFO\r\nexport NCCL_TIMEOUT=5\r\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "Dockerfile",
        (
            "FROM nvcr.io/nvidia/pytorch:24.08-py3\n"
            "RUN echo 'export NCCL_DEBUG=INFO' >> /etc/profile && pip install x\n"
            "ENV NCCL_IB_TIMEOUT=22\n"
            'CMD ["bash","-c","NCCL_TIMEOUT=30 torchrun t.py"]\n'
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_IB_TIMEOUT": "22", "NCCL_TIMEOUT": "30"},
    ),
    ("Dockerfile", ("FROM x\nENTRYPOINT export NCCL_ALGO=Ring && exec torchrun t.py\n"), {"NCCL_ALGO": "Ring"}),
    (
        "Dockerfile",
        ("FROM x\nRUN <<EOF\nexport NCCL_TIMEOUT=4\nENV NCCL_DEBUG=INFO\nEOF\nENV NCCL_PROTO=LL\n"),
        {"NCCL_PROTO": "LL"},
    ),
    (
        "compose.yaml",
        (
            "services:\n"
            "  t:\n"
            '    command: ["bash","-c","NCCL_IB_DISABLE=true torchrun t.py"]\n'
            "    environment:\n"
            "      NCCL_IB_HCA: ${HCA:-mlx5}\n"
            "      NCCL_IB_TC: 106\n"
            "      NCCL_P2P_DISABLE: yes\n"
        ),
        {"NCCL_IB_DISABLE": "true", "NCCL_IB_HCA": None, "NCCL_IB_TC": "106", "NCCL_P2P_DISABLE": "yes"},
    ),
    (
        "pod.yaml",
        (
            "apiVersion: v1\n"
            "kind: Pod\n"
            "spec:\n"
            "  containers:\n"
            "  - name: a\n"
            '    args: ["env", "NCCL_TIMEOUT=30", "torchrun", "t.py"]\n'
            "  - name: b\n"
            "    command: [mpirun, -x, NCCL_DEBUG=INFO, -np, '2', ./a]\n"
        ),
        {"NCCL_TIMEOUT": "30", "NCCL_DEBUG": "INFO"},
    ),
    (
        "mpijob.yaml",
        (
            "apiVersion: kubeflow.org/v2beta1\n"
            "kind: MPIJob\n"
            "spec:\n"
            "  mpiReplicaSpecs:\n"
            "    Launcher:\n"
            "      template:\n"
            "        spec:\n"
            "          containers:\n"
            "          - name: l\n"
            "            command:\n"
            "            - mpirun\n"
            "            - --allow-run-as-root\n"
            "            - -x\n"
            "            - NCCL_SOCKET_IFNAME=eth0\n"
            "            - -x\n"
            "            - NCCL_TIMEOUT=99\n"
            "            - -x\n"
            "            - LD_LIBRARY_PATH\n"
            "            - all_reduce_perf\n"
        ),
        {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_TIMEOUT": "99"},
    ),
    (
        "kustomization.yaml",
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\n"
            "kind: Kustomization\n"
            "configMapGenerator:\n"
            "- name: nccl\n"
            "  literals:\n"
            "  - NCCL_DEBUG=INFO\n"
            "  - NCCL_TIMEOUT=30\n"
            "patches:\n"
            "- patch: |-\n"
            "    - op: add\n"
            "      path: /spec/template/spec/containers/0/env/-\n"
            "      value:\n"
            "        name: NCCL_IB_DISABLE\n"
            '        value: "true"\n'
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "30", "NCCL_IB_DISABLE": "true"},
    ),
    (
        "main.tf",
        (
            'resource "aws_batch_job_definition" "t" {\n'
            "  container_properties = jsonencode({\n"
            "    environment = [\n"
            '      { name = "NCCL_TIMEOUT", value = "30" },\n'
            "    ]\n"
            "  })\n"
            "}\n"
        ),
        {"NCCL_TIMEOUT": "30"},
    ),
    (
        "nextflow.config",
        ("env {\n  NCCL_DEBUG = 'INFO'\n  NCCL_TIMEOUT = '30'\n}\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "30"},
    ),
    (
        "run.sh",
        (
            "f() { NCCL_DEBUG=INFO torchrun t.py; }\n"
            "case $X in a) export NCCL_ALGO=Ring;; b) export NCCL_PROTO=LL ;; esac\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    ),
    (
        "run.sh",
        ('ARGS=(-x NCCL_DEBUG=INFO -x NCCL_TIMEOUT=5)\nmpirun "${ARGS[@]}" ./a\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "run.sh",
        ('MPI_OPTS="-x NCCL_DEBUG=INFO -x NCCL_TIMEOUT=5"\nmpirun $MPI_OPTS ./a\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "run.sh",
        (
            "kubectl set env deploy/x NCCL_TIMEOUT=5\n"
            'kubectl run t --env="NCCL_DEBUG=INFO" --image x\n'
            "helm install x --set env.NCCL_ALGO=Ring\n"
        ),
        {"NCCL_TIMEOUT": "5", "NCCL_DEBUG": "INFO"},
    ),
    (
        "run.sh",
        ('deepspeed --launcher_args "-x NCCL_DEBUG=INFO" t.py\naccelerate launch --mixed_precision bf16 t.py\n'),
        {"NCCL_DEBUG": "INFO"},
    ),
    (
        "run.sh",
        ('ray job submit --runtime-env-json \'{"env_vars": {"NCCL_TIMEOUT": "5"}}\' -- python t.py\n'),
        {"NCCL_TIMEOUT": "5"},
    ),
    (
        "run.sh",
        (
            "torchx run -s kubernetes dist.ddp --env NCCL_DEBUG=INFO,NCCL_TIMEOUT=4 -j 2x2\n"
            "sky launch --env NCCL_ALGO=Ring t.yaml\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "4", "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        (
            "qsub -v NCCL_DEBUG=INFO,NCCL_TIMEOUT=5 job.pbs\n"
            'bsub -env "all, NCCL_ALGO=Ring" x\n'
            "sbatch --export=ALL,NCCL_PROTO=LL job.sh\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    ),
    ("run.ps1", ("$env:NCCL_DEBUG = \"INFO\"\n$Env:NCCL_TIMEOUT='5'\n"), {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"}),
    (
        "run.bat",
        ('@echo off\r\nset NCCL_DEBUG=INFO\r\nset "NCCL_TIMEOUT=5"\r\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "train.ipynb",
        (
            '{"cells":[{"cell_type":"code","source":["import os\\n","os.environ[\\"NCCL_TIMEOUT'
            '\\"] = \\"5\\"\\n","%env NCCL_DEBUG=INFO\\n","!NCCL_ALGO=Ring torchrun t.py\\n"]}],"me'
            'tadata":{},"nbformat":4}'
        ),
        {"NCCL_TIMEOUT": "5", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"},
    ),
    (
        "t.py",
        (
            "import os\n"
            "os.environ['NCCL_TIMEOUT']='5'\n"
            "os.environ.update(NCCL_DEBUG='INFO')\n"
            "import subprocess\n"
            "subprocess.run(['torchrun'], env={**os.environ,'NCCL_ALGO':'Ring'})\n"
            "ENV = {'NCCL_PROTO':'LL'}\n"
            "os.environ |= {'NCCL_IB_TC':'106'}\n"
            "os.environ['NCCL_IB_SL']=str(3)\n"
            "os.environ['NCCL_MIN_CTAS']=f'{3}'\n"
            "for k,v in {'NCCL_MAX_CTAS':'4'}.items(): os.environ[k]=v\n"
            "os.environ.update(dict(NCCL_BUFFSIZE='8M'))\n"
        ),
        {
            "NCCL_TIMEOUT": "5",
            "NCCL_DEBUG": "INFO",
            "NCCL_ALGO": "Ring",
            "NCCL_IB_TC": "106",
            "NCCL_IB_SL": None,
            "NCCL_MIN_CTAS": None,
            "NCCL_MAX_CTAS": "4",
            "NCCL_BUFFSIZE": "8M",
        },
    ),
    (
        "t.py",
        (
            "from ray.train import RunConfig\n"
            "import ray\n"
            "ray.init(runtime_env={'env_vars': {'NCCL_TIMEOUT':'5','NCCL_DEBUG':'INFO'}})\n"
            "import modal\n"
            "image = modal.Image.debian_slim().env({'NCCL_ALGO':'Ring'})\n"
        ),
        {"NCCL_TIMEOUT": "5", "NCCL_DEBUG": "INFO"},
    ),
    (
        ".gitlab-ci.yml",
        (
            "variables:\n"
            "  NCCL_DEBUG: INFO\n"
            "  X:\n"
            "    value: '1'\n"
            "    description: d\n"
            "  NCCL_TIMEOUT:\n"
            "    value: '30'\n"
            "train:\n"
            "  script:\n"
            "    - export NCCL_ALGO=Ring\n"
            "    - torchrun t.py\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "30", "NCCL_ALGO": "Ring"},
    ),
    (
        "w.yaml",
        ("jobs:\n  t:\n    steps:\n    - run: NCCL_TIMEOUT=9 torchrun t.py\n      env:\n        NCCL_DEBUG: INFO\n"),
        {"NCCL_TIMEOUT": "9", "NCCL_DEBUG": "INFO"},
    ),
    (
        "values.yaml",
        (
            "worker:\n"
            "  extraEnv:\n"
            "    - name: NCCL_DEBUG\n"
            "      value: INFO\n"
            "  envFrom: []\n"
            "  extraEnvVarsList: []\n"
            "  environmentVars:\n"
            "    NCCL_TIMEOUT: '5'\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "pyproject.toml",
        ('[tool.pytest.ini_options]\nenv = ["NCCL_DEBUG=INFO"]\n[tool.pixi.activation.env]\nNCCL_TIMEOUT = "5"\n'),
        {"NCCL_TIMEOUT": "5", "NCCL_DEBUG": "INFO"},
    ),
    (
        "supervisord.conf",
        ('[program:t]\ncommand=torchrun t.py\nenvironment=NCCL_DEBUG="INFO",NCCL_TIMEOUT="5"\n'),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "mod.tcl",
        (
            "#%Module1.0\n"
            "setenv NCCL_DEBUG INFO\n"
            "prepend-path PATH /x\n"
            "setenv NCCL_TIMEOUT {5}\n"
            'setenv NCCL_ALGO "Ring"\n'
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring"},
    ),
    (
        "Makefile",
        ("export NCCL_DEBUG := INFO\ntrain:\n\tNCCL_TIMEOUT=5 torchrun t.py\n"),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "flyte.yaml",
        (
            "task_resources: {}\n"
            "plugins:\n"
            "  k8s:\n"
            "    default-env-vars:\n"
            "      - NCCL_DEBUG: INFO\n"
            "      - NCCL_TIMEOUT: '5'\n"
        ),
        {"NCCL_DEBUG": "INFO", "NCCL_TIMEOUT": "5"},
    ),
    (
        "azureml.yaml",
        (
            "$schema: https://x\n"
            "type: command\n"
            "command: NCCL_ALGO=Ring python t.py\n"
            "environment_variables:\n"
            "  NCCL_TIMEOUT: 5\n"
            "environment: azureml:x@latest\n"
        ),
        {"NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring"},
    ),
    (
        "raycluster.yaml",
        (
            "apiVersion: ray.io/v1\n"
            "kind: RayCluster\n"
            "spec:\n"
            "  runtimeEnvYAML: |\n"
            "    env_vars:\n"
            '      NCCL_TIMEOUT: "3"\n'
        ),
        {"NCCL_TIMEOUT": "3"},
    ),
    (
        "nemo.yaml",
        "env_vars:\n  NCCL_DEBUG: null\n  NCCL_PROTO: ~\n  NCCL_NVLS_ENABLE: 0\n",
        {"NCCL_DEBUG": None, "NCCL_PROTO": None, "NCCL_NVLS_ENABLE": "0"},
    ),
    (
        "one_line.tf",
        'variables = { NCCL_TIMEOUT = "5", NCCL_ALGO = "Ring" }\n',
        {"NCCL_TIMEOUT": "5", "NCCL_ALGO": "Ring"},
    ),
    (
        "run.sh",
        "function launch { export NCCL_ALGO=Ring; torchrun t.py; }\nfunction f() {\n  export NCCL_PROTO=LL\n}\n",
        {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    ),
    (
        "run.sh",
        'export NCCL_DEBUG="IN\\\nFO" NCCL_DEBUG_FILE="/tmp/a\\b\\$c.%h"\nexport NCCL_ALGO=Ring\n',
        {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/a\\b$c.%h", "NCCL_ALGO": "Ring"},
    ),
    ("Dockerfile", 'FROM x\nENV NCCL_DEBUG="IN\\\nFO"\n', {"NCCL_DEBUG": "INFO"}),
    ("run.sh", "cat <<< hello\nexport NCCL_DEBUG=INFO\n", {"NCCL_DEBUG": "INFO"}),
    (
        "run.sh",
        "export NCCL_BUFFSIZE=$((1<<22))\nexport NCCL_ALGO=Ring\n",
        {"NCCL_BUFFSIZE": None, "NCCL_ALGO": "Ring"},
    ),
    ("run.sh", "export NCCL_DEBUG='a <<b'\nexport NCCL_ALGO=Ring\n", {"NCCL_DEBUG": "a <<b", "NCCL_ALGO": "Ring"}),
)


def test_every_kind_of_file_is_read_as_what_runs_it_reads_it() -> None:
    wrong = {}
    for name, text, expected in FILES:
        parsed = read_text(name, text)
        found = {s.name: s.value for s in parsed.settings if s.name.startswith(("NCCL", "OMP")) and s.exported}
        if found != expected:
            wrong[name, text] = found
    assert wrong == {}


def test_what_no_build_takes_is_said() -> None:
    parsed = read_text("Dockerfile", "FROM x\nENV NCCL_DEBUG\nENV NCCL_ALGO=Ring\n")
    assert [(m.line, m.slip) for m in parsed.malformed] == [(2, Slip.UNREADABLE)]
    assert [s.name for s in parsed.settings] == ["NCCL_ALGO"]
