"""Secrets never leave in a report: what is masked, what is not, and that the whole command masks."""

import base64
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from allready import redaction as secrets
from allready.cli.main import main
from allready.model import Difference
from allready.patterns import compiled
from allready.redaction import REDACTED, is_secret_name, masked, masked_all, masked_value
from allready.redaction.pairs import without_pairs
from allready.redaction.places import without_placed
from allready.redaction.spoken import without_spoken
from tests.cases import cases
from tests.clock import cpu_s

SECRET = "Zq8hidden"
HEX_KEY = "0123456789abcdef" * 2 + "01234567"

SHOWN = [
    f"WANDB_API_KEY={SECRET}",
    f"export HF_TOKEN='{SECRET}'",
    f"gpu1:1:1 [0] NCCL INFO NCCL_AUTH_TOKEN set by environment to {SECRET}.",
    f"environ({{'AWS_SECRET_ACCESS_KEY': '{SECRET}', 'HOME': '/root'}})",
    f"AZURE_STORAGE_KEY: {SECRET}==",
    f"Process 1: python -u train.py --hf-token {SECRET} --lr 1e-3",
    f"Process 1: python -u train.py --api_key={SECRET}",
    f"cmd: ['train.py', '--wandb-api-key', '{SECRET}', '--lr', '1']",
    f'    login(token="{SECRET}")',
    f'{{"password": "{SECRET}", "user": "me"}}',
    f"GET https://bucket/x?access_token={SECRET}&n=1",
    f"https://s3/x?X-Amz-Signature={SECRET}",
    f"cannot open postgres://me:{SECRET}@db:5432/runs",
    f"Authorization: Bearer {SECRET}",
    f'            token: "{SECRET}"',
    f"wandb: API key: {SECRET}{HEX_KEY}",
    f'wandb.login(key="{SECRET}{HEX_KEY}")',
    f"-----BEGIN RSA PRIVATE KEY-----{SECRET}",
    "hf_" + SECRET * 4,
    "ghp_" + SECRET * 4,
    "sk-proj-" + SECRET * 4,
]

MIXED = "Zq8hiddenAb3Cd4Ef5Gh6Ij7Kl8Mn9Op0Qr1St2Uv3Wx4Yz5"
BARE = [
    f"AKIAIOSFODNN7EXAMPLE {MIXED[:40]}",
    f"AKIAIOSFODNN7EXAMPLE aws_secret: {MIXED[:40]}",
    f"ya29.{MIXED}", f"GOCSPX-{MIXED[:28]}", f"1//0{MIXED}", f"AIza{MIXED[:35]}",
    f"https://storage.googleapis.com/b/o?X-Goog-Signature={MIXED}&x=1",
    f"https://foo.blob.core.windows.net/c?sv=2020-08-04&sig={MIXED}%3D&se=2030",
    f"abc8Q~{MIXED[:34]}",
    f"Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={MIXED}=",
    f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={MIXED}==;EndpointSuffix=core.windows.net",
    f"Server=db;Uid=me;Pwd={MIXED};", f"clientSecret: '{MIXED}'", f"accessToken={MIXED}", f"redis://:{MIXED}@h:6379/0",
    f"mongodb+srv://me:{MIXED}@cluster0.mongodb.net/db", f"amqps://me:{MIXED}@rabbit/vhost",
    f"github_pat_{MIXED}", f"gho_{MIXED}", f"glpat-{MIXED[:20]}", f"gldt-{MIXED[:20]}", f"glrt-{MIXED[:20]}",
    f"npm_{MIXED[:36]}", f"pypi-{MIXED}", f"dckr_pat_{MIXED[:27]}", f"dckr_oat_{MIXED[:27]}", f"ATATT3{MIXED}",
    f"hf_{MIXED[:34]}", f"nvapi-{MIXED}", f"r8_{MIXED[:37]}", f"gsk_{MIXED}", f"xai-{MIXED}", f"pplx-{MIXED}",
    f"sk-ant-api03-{MIXED}", f"sk-proj-{MIXED}", f"wandb login {MIXED[:40]}", f"wandb_v1_{MIXED}",
    f"xoxb-123456789012-{MIXED}", f"xapp-1-A0-{MIXED}", f"https://hooks.slack.com/services/T0/B0/{MIXED}",
    f"https://discord.com/api/webhooks/123456789/{MIXED}", f"https://x.webhook.office.com/webhookb2/{MIXED}",
    f"sk_live_{MIXED}", f"rk_test_{MIXED}", f"whsec_{MIXED}", f"SG.{MIXED[:22]}.{MIXED}", f"hvs.{MIXED}",
    f"123456789:AA{MIXED[:33]}", f"Abcdefghijklm1.atlasv1.{MIXED}", f"dp.st.{MIXED}", f"ntn_{MIXED}",
    f"eyJhbGciOiJI{MIXED}.{MIXED}.{MIXED}", f"curl -u me:{MIXED} https://h/", f"Authorization: Token {MIXED}",
    f"machine api.wandb.ai login user password {MIXED}", f"-----BEGIN PGP PRIVATE KEY BLOCK-----{MIXED}",
    f"AGE-SECRET-KEY-1{MIXED.upper()}",
    f'{{"auths": {{"r.io": {{"auth": "{MIXED}"}}}}}}', f'"identitytoken":"{MIXED}"', f"    client-key-data: {MIXED}==",
    f'os.environ["HF_TOKEN"] = "{MIXED}"', f"<password>{MIXED}</password>", f"Set-Cookie: sid={MIXED}; Path=/",
    f'{{"msg": "{{\\"password\\": \\"{MIXED}\\"}}"}}', f"mysql -u root -p{MIXED} db",
    f"docker login -u bob -p {MIXED} ghcr.io", f"podman login -p {MIXED} quay.io", f'psk = "{MIXED}"',
    f"default  login me password {MIXED}", f"db.host:5432:prod:alice:{MIXED}", f"alice:$apr1${MIXED[:8]}${MIXED[:22]}",
    f"root:$6${MIXED[:16]}${MIXED * 2}:19000:0:99999:7:::", f"Private-Lines: 1\n{MIXED}\nPrivate-MAC: 0",
    f"GOOG1E{MIXED.upper()}", f"https://api.telegram.org/bot123456789:AA{MIXED[:33]}/getMe", f"run_hf_{MIXED[:34]}.log",
    f"MTA{MIXED[:21]}.aB3dE5.{MIXED[:38]}", f"_auth={MIXED}", f"fs.s3a.secret.key={MIXED}",
    f'{{"SessionToken":"{MIXED}"}}', f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----{MIXED}",
    f"curl -b 'session={MIXED}' https://h/", f"curl -ume:{MIXED} https://h/", f"http -a me:{MIXED} GET h",
    f"Authorization: SSWS {MIXED}", f"https://open.feishu.cn/open-apis/bot/v2/hook/{MIXED}", f"api.login('{MIXED}')",
    f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={MIXED}", f"swanlab login -k {MIXED}", f"AKCp{MIXED}",
    f"https://conda.anaconda.org/t/{MIXED}/channel", f"az login --service-principal -u x -p {MIXED} --tenant y",
    f"mc alias set m http://h me {MIXED}", f"pat{MIXED[:14]}.{'0123456789abcdef' * 4}",
    f"password for bob: {MIXED}", f"the new password is {MIXED}", f"密码：{MIXED}", f"令牌={MIXED}",
    f"密码：{MIXED[10:24]}", f"用户 bob 密码 {MIXED[:20]}", f"fs.azure.account.key.x.dfs.core.windows.net {MIXED[:24]}",
    f"apikey => '{MIXED}'", f"  credential={MIXED}", f"  hf_token ......................... {MIXED}",
    f"│ hf_token        │ {MIXED} │", f"| api_key | {MIXED} |", f"      WANDB_API_KEY:              {MIXED}\n",
    f"SecretID:       {MIXED}", f"rsync --password-file=<(echo {MIXED}) a b",
]  # fmt: skip
"""Shapes that are known without a name before them, and connection strings."""
HEXADECIMAL = [
    "dapi" + "0123456789abcdef" * 2, "dop_v1_" + "0123456789abcdef" * 4, "key-" + "0123456789abcdef" * 2,
    "shpat_" + "0123456789abcdef" * 2, "SK" + "0123456789abcdef" * 2, "pul-" + "01234567" * 5, "sbp_" + "01234567" * 5,
    f"wandb: login key {HEX_KEY}",
]  # fmt: skip

PLACED = [
    f"hf_token:\n  {SECRET}a\n  {SECRET}b\nnext: 3\n", f"password: >-\n  {SECRET}\n  two words\nuser: bob\n",
    f"  api_key: |\n    {SECRET}a\n\n    {SECRET}b\nkind: x\n", f"api_key: {SECRET}\n  {SECRET}b\nfoo: bar\n",
    f"tokens:\nhf_token:\n  - {SECRET}a\n  - {SECRET}b\nx: 1\n", f"api_keys:\n  openai: {SECRET}\n  n: 1\n",
    f"- name: SESSION_COOKIE\n  value: {SECRET}\n",
    f"- name: HF_TOKEN\n  value: {SECRET}\n", f"- name: DB_PASSWORD\n  value: |\n    {SECRET}\n- name: X\n  value: y\n",
    f'{{"name": "WANDB_API_KEY", "value": "{SECRET}"}}', f'{{ name = "HF_TOKEN", value = "{SECRET}" }}',
    f'<add key="ApiSecret" value="{SECRET}"/>', f'variable "db_password" {{ default = "{SECRET}" }}',
    f"apiVersion: v1\nkind: Secret\ndata:\n  a.txt: {SECRET}\n  b: |\n    {SECRET}\ntype: Opaque\n",
    f"kind: Secret\ndata: {{a: {SECRET}, b: '{SECRET}'}}\ntype: Opaque\n",
    f'{{"kind": "Secret", "data": {{"a": "{SECRET}", "b": "{SECRET}"}}, "type": "Opaque"}}',
    f'{{"type": "service_account", "private_key_id": "{SECRET}{HEX_KEY}", "client_id": "1234"}}',
    f"JobCompPass={SECRET}", f"AccountingStoragePass={SECRET}", f"ansible_ssh_pass: {SECRET}",
    f"[x]\npass = {SECRET}\n",
    f"requirepass {SECRET}", f"bindpw {SECRET}", f"aws_session_token=\n  {SECRET}\n", f"PresharedKey = {SECRET}=",
    f"az keyvault secret set --vault-name v --name w --value {SECRET}", f"gh secret set HF --body '{SECRET}'",
    f"aws secretsmanager create-secret --name x --secret-string {SECRET}", f"vault login -no-print {SECRET}",
    f"aws configure set aws_secret_access_key {SECRET} --profile p", f"ssh-keygen -t rsa -N {SECRET} -f k",
    f"echo {SECRET} | kinit bob", f'{{"username":"bob","key":"{SECRET}"}}',
    f"redis-cli -h h -a {SECRET} ping", f"sshpass -p '{SECRET} x' ssh root@gpu01", f"sshpass -p{SECRET} ssh root@gpu01",
    f"ipmitool -I lanplus -H bmc01 -U admin -P {SECRET} power status", f"snmpget -v2c -c {SECRET} host",
    f"openssl enc -aes-256-cbc -k {SECRET} -in x", f"openssl rsa -passin pass:{SECRET} -in x",
    f"curl --user bob:{SECRET} https://x", f"kubectl create secret generic hf --from-literal=mine={SECRET}",
    f"echo {SECRET} | docker login -u x --password-stdin", f"xauth add h/unix:0 MIT-MAGIC-COOKIE-1 {HEX_KEY}",
    f"headers={{'Authorization': 'Basic {SECRET}=='}}", f"{{'password': b'{SECRET}'}}", f"t.py --db-pass {SECRET}",
    f"aws configure set aws_secret_access_key {MIXED}", f"vastai set api-key {HEX_KEY}{HEX_KEY}",
    f"ENV HF_TOKEN {SECRET}", f"setenv HF_TOKEN {SECRET}", f"set -gx HF_TOKEN {SECRET}",
    f"machine api.wandb.ai\n  login user\n  password {SECRET}\n", f"<Password>\n  {SECRET}\n</Password>\n",
    f"password: {re.sub('[0-9]', '', SECRET)}\n", f"  pass: {SECRET}\n", f"SecretAccessKey: {SECRET}\n",
    f"ALTER ROLE bob WITH PASSWORD '{SECRET}'; CREATE USER a IDENTIFIED BY '{SECRET}';", f"HF_TOKEN=$'{SECRET}'\n",
    f"requests.get(u, auth=('bob', '{SECRET}'))", f"vault kv put secret/x value={SECRET}", f"mongosh -u b -p {SECRET}",
    f"['train.py', '--wandb_key', '{MIXED}']", f'{{"tokens": [\n  "{MIXED}",\n  "x"\n]}}\n', f"ldapsearch -w {SECRET}",
    f"aaa\n<name>fs.s3a.secret.key</name>\n<value>{SECRET}</value>\n", f"X-Api-Key: {re.sub('[0-9]', '', MIXED)}\n",
    f"apiVersion: v1\ndata:\n  a.txt: {SECRET}\nkind: Secret\nmetadata:\n  name: x\n",
    f'{{\n "name": "DB_PASSWORD",\n "value": "{SECRET}"\n}}\n', f"  hf_token: >-\n    {SECRET}\n  foo: bar\n",
    f"Namespace(wandb_key='{HEX_KEY}', lr=0.1)", f"RUNPOD={MIXED}", f"JENKINS_API={HEX_KEY}",
    f"ldapsearch -x -D cn=a -w {SECRET} -b dc=x", f"mosquitto_pub -u bob -P {SECRET} -t x", f"zip -P {SECRET} a.zip b",
    f"unzip -P {SECRET} a.zip", f"7z x -p{SECRET} a.7z", f"htpasswd -b f bob {SECRET}", f': PSK "{SECRET}"',
    f'expect "assword:" {{ send "{SECRET}\\r" }}', f"[rank0]: pass = {SECRET}",
    f"<property><name>fs.s3a.secret.key</name>\n<value>{SECRET}</value></property>",
    f"creds {base64.b64encode(f'aws_secret_access_key = {SECRET}'.encode()).decode()}",
    "x\n" + base64.encodebytes(f"[default]\nuser = me\naws_secret_access_key = {SECRET} {SECRET}".encode()).decode(),
    json.dumps({"message": json.dumps({"auths": {"r.io": {"auth": SECRET}}})}),
    json.dumps({"message": f"[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {SECRET}"}),
    json.dumps({"message": f"密码: {SECRET}1", "next": "a"}),
    f"secret_laptop_{HEX_KEY}.{MIXED[:32]}", f"notion secret_{MIXED[:43]}", f"tskey-auth-{MIXED[:12]}-{MIXED[:32]}",
    f"fw_{MIXED[:24]}", f"csk-{MIXED[:48]}", f"sb_secret_{MIXED[:31]}", f"rpa_{MIXED[:44]}",
]  # fmt: skip
"""Known by where they stand, or by looking drawn at random."""

HARMLESS = [
    "  eos_token ....................... [EOS]\n  tokenizer_type .................. GPT2BPETokenizer\n",
    "| tokens | 12,345 | 3.2k/s |\n│ 0 │ embed_tokens │ Embedding │ 131 M │ train │\n",
    "      WANDB_API_KEY:                  <set to the key 'key' in secret 'wandb-1'>  Optional: false\n",
    "  train_tokens ....... 3000000000000\n  tokens ..... 1.23e+12\nmax_position_tokens => 1310720000000\n",
    "input_tokens | output=12345678\ntoken | step=12345\ntokens | tokens/s=1234.5\n",
    "已处理令牌：3000000\n处理令牌: 1048576 个，每秒令牌：123456.78\n令牌 step12345 loss，密钥 /etc/ssl/key1.pem\n",
    "    Secret:      ca-bundle-v2\nпароль user12345\n",
    "密码 错误1次，口令：不正确\n",
    "token | count2 | tokens => 1.2M\n",
    "  SecretName:      wandb-secret-2\n",
    "kind: Pod\nspec:\n  secret:\n    secretName: hf\n    items:\n    - key: a\n      path: b\n",
    "- name: HF_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: hf\n      key: token\n",
    "- name: NUM_TOKENS\n  value: '4096'\n",
    "kind: ConfigMap\ndata:\n  train.sh: |\n    torchrun train.py\n",
    "token:\n  Traceback (most recent call last):\n",
    "name: tokenizer_path\nvalue: /data/x",
    "fxgraph cache_key=0123456789abcdef0123456789abcdef COMMIT=" + "0123456789abcdef" * 2,
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL torchjob-worker-0-x7k2p ami-0abcdef1234567890 sha256-0123456789abcdef",
    "image: nvcr.io/nvidia/pytorch:24.08-py3 models--meta-llama--Llama-3-8B-Instruct checkpoint-1000-of-2000-step",
    "first_pass: 12ms forward_pass=3 backward pass: slow; echo done | tee log; openssl version; curl -k https://x",
    "docker run -u 1000:1000 image",
    "glibc-2.31-compatible-and-long-enough-name cudnn-8.9 SK hynix s.value",
    "sk_buff xox hooks.slack.com npm_config_prefix=/usr machine learning login page",
    "signature=none sig=1 global-step-with-a-long-name-1234567890 /usr/lib/python3/dist-packages/AKIA/x",
    "GOOGLE_APPLICATION_CREDENTIALS=/secrets/sa.json HF_TOKEN: not set, the password is wrong, the token is 12",
    "password for bob: rejected; 7z x a.7z -o/tmp; zip -r a.zip b; curl -b cookies.txt h; 令牌: 4096; http -a",
    "base64 aGVsbG8gd29ybGQgdGhpcyBpcyBhIHRlc3Qgc3RyaW5nIHdpdGggbm90aGluZw==",
    '{"message": "a \\"quoted\\" word\\nand a line", "path": "C:\\\\x"}',
    "the password authentication failed; totalTokens=4096 numTokens: 5",
    "NCCL_IB_PKEY set by environment to 7",
    "PWD=/home/me OLDPWD=/tmp SSH_AUTH_SOCK=/tmp/agent",
    "num_tokens=4096 tokens/s: 33000 token=5 pad_token='<pad>' max_new_tokens=many",
    "KeyError: 'x'; store key: default_pg, keys: /default_pg/0//cuda//0",
    "Unexpected token: unexpected end",
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 NCCL_DEBUG=INFO",
    "HF_TOKEN=None API_KEY=<unset>",
    "comm 0xb1845cff66ade0f0 commId 0xabc hash 0123456789abcdef0123456789abcdef",
    "_ZN4c10d16ProcessGroupNCCL8WorkNCCL15checkTimeoutESt8optionalINSt6chrono8durationIlSt5ratio",
    "hf_transfer_checkpoint_loader_utils.py:20 disk-task-scheduler-with-a-long-name sk-learn-metrics-with-a-name",
    "tcp://10.0.0.1:29500 10.0.0.1<33549> git@host:x",
    'os.environ["NCCL_DEBUG"] = "INFO" x["key"] = "value" mysql -u root -h db --port 3306 login page cost $5$ and $1$',
    "Waiting for kind: Secret to be made; forward pass = 0.35 pass = 3 pass: true; machine node7",
    "Secret: no",
    "SyntaxError: Unexpected token: identifier",
    "ValueError: invalid token: foo",
    "secretName: hf-token",
    "secretKeyRef: {name: hf, key: token}",
    "image@sha256:9b2e5b7b7a1b0d6f8c3a4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192",
    "docker run -p 8080:8080 login wandb: run 3key at commit 0123456789abcdef0123456789abcdef01234567",
    'cookiecutter "auth": true, <token> is missing; auth: none; 10.0.0.1:5432: connection refused',
]


@cases("line", SHOWN)
def test_masks_a_secret_and_says_so(line: str) -> None:
    assert SECRET not in masked(line)
    assert REDACTED in masked(line)


@cases("line", [*BARE, *HEXADECIMAL])
def test_masks_the_shapes_of_well_known_tokens(line: str) -> None:
    shown = masked(f"RuntimeError: cannot log in with {line} here")
    assert REDACTED in shown
    assert "hidden" not in shown.lower()
    assert "0123456" not in shown


@cases("text", PLACED)
def test_masks_what_stands_where_secrets_stand(text: str) -> None:
    shown = masked(text)
    assert REDACTED in shown
    assert "hidden" not in shown
    assert "0123456789abcdef" not in shown
    assert "two words" not in shown
    kept = ("foo: bar", "next: 3", "user: bob", "x: 1", "kind: x", "value: y", "type: Opaque", "client_id", "lr=0.1")
    assert [word for word in kept if word in text and word not in shown] == []
    assert masked(shown) == shown


PREFIXES = (
    "2026-01-0{n}T10:00:0{n}.{n}00Z ", "pod/train-0-x7k2p: ", "[rank{n}]: ",
    "2026-01-01 10:00:0{n},12{n} - app - INFO - ",
    "2026-01-01T10:00:01.{n}77Z stdout F ", "trainer-1  | ", "Jan  1 10:00:0{n} node7 kubelet[12{n}]: ",
    "node0:1{n}:1 [0] ", "+", "> ", "{n}: ", "     {n}\t", "# ", "[default{n}]:", "I0101 10:00:0{n}.000 main.go:1] ",
)  # fmt: skip
"""What logs, diffs, mails and listings put in front of lines."""


@pytest.mark.thorough
@cases("prefix", PREFIXES)
def test_masks_it_as_well_behind_what_a_log_puts_in_front_of_each_line(prefix: str) -> None:
    for text in PLACED:
        if text.startswith(f"api_key: {SECRET}"):
            continue  # a value that goes on in the next line with nothing that says so
        lines = [
            "begin",
            *(prefix.replace("{n}", str(n % 10)) + line for n, line in enumerate(text.split("\n"))),
            "end",
        ]
        shown = masked("\n".join(lines))
        assert "hidden" not in shown, text
        assert "0123456789abcdef" not in shown, text
        assert len(shown.split("\n")) == len(lines)
        assert masked(shown) == shown, text


@cases("prefix", PREFIXES)
def test_leaves_what_is_no_secret_behind_it(prefix: str) -> None:
    text = "\n".join(prefix.replace("{n}", str(n % 10)) + line for n, line in enumerate(HARMLESS))
    assert masked(text) == text


@cases("line", HARMLESS)
def test_leaves_what_is_no_secret(line: str) -> None:
    assert masked(line) == line


@pytest.mark.thorough
@cases("prefix", ("", *PREFIXES))
def test_leaves_lines_of_logs_and_configurations_that_only_look_like_one(prefix: str) -> None:
    lines = (Path(__file__).parent / "fixtures/redaction_harmless.txt").read_text().split("\n")
    text = "\n".join(prefix.replace("{n}", str(n % 10)) + line for n, line in enumerate(lines))
    assert masked(text).split("\n") == text.split("\n")
    assert [line for line in lines if masked(line) != line] == []


@cases("line", SHOWN)
def test_masking_again_changes_nothing(line: str) -> None:
    assert masked(masked(line)) == masked(line)


DRAWN = "bFq7Zk2LxWm9TsRt4VhYn8PcDj3GaUe6KoQi5B"
SPOKEN = [
    "pwd: @", "pw: @", "pwd @ for bob", "passcode: @", "token @ from vault", "got token @.", "the secret is @",
    "api key @",
    "recovery code @", "cluster-key @", "munge key @", "login bob / @", "user/pass: bob/@", "password bob @", "key: @",
    "credentials: @", "session_id=@", "JSESSIONID=@", 'cookies={"sessionid": "@"}', "csrftoken=@", "salt=@", "otp: @",
    "using @", "-> @", "Saved @ to disk", '"@"', "logged in as bob (@)", "[@]", 'x = "@"', "Client('@')",
    "license key: @",
    "payload=%7B%22password%22%3A%22@%22%7D", "next=%2Fx%3Ftoken%3D@%26a%3D1", 'curl -u "bob:@" https://x',
    "curl -su bob:@ https://x", "machine\tgithub.com\tlogin\tbob\tpassword\t@", ".x.org\tTRUE\t/\tTRUE\t17\tsid\t@",
    'password="ab\\"@" user=x', "password='ab\\'@'", "DB_PASSWORD=p&ss;@,x)y", "password: p,ss&@)x",
    "password = p;ss,@&x",
    "train.py --api-key \\\n  @ \\\n --lr 1", "{password: x1, token: @, user: bob}", "pwd=@", "DB_PWD: @",
    "password->@",
]  # fmt: skip
"""As people write them, or with nothing that says what they are; @ stands for the secret."""
PASSWORDS = [
    "pwd: @", "pwd @", "pw: @", "pw=@", "passwd @", "Password: @", "username: bob, pwd: @", "user: bob password: @",
    "user=bob password=@", "db_pwd: @", "login: bob\npwd: @", "the password is @", "password @ for the BMC",
]  # fmt: skip
GOING_ON = [
    'password: "@a\n  @b"\nuser: bob\n', "api_key: '@a\n  @b'\nuser: bob\n", "api_key: @a\n  @b\nuser: bob\n",
    "env:\n- value: @a\n  name: HF_TOKEN\n- value: @b\n  name: DB_PASSWORD\n",
    "password: !!str @a\nsecret: !vault |\n  @b\n",
    "? password\n: @a\n? token\n: @b\n", "password:\n  value: @a\ntoken:\n  current: @b\n",
    "api_key: &p @a\npassword: &q @b\n",
    "password: # the main one\n  @a\ntoken: |  # x\n  @b\nuser: bob\n",
    'password = """\n@a\n"""\napi_keys = [\n  "@b",\n]\n',
    "password =\n  @a\ntoken = x\n  @b\n", "{password: @a, token: @b, user: bob}\n",
]  # fmt: skip


@cases("text", SPOKEN)
def test_masks_what_people_write_to_each_other_and_what_only_a_generator_draws(text: str) -> None:
    for secret in (DRAWN, DRAWN.replace("7", "x").replace("2", "y")):
        shown = masked(text.replace("@", secret))
        assert secret not in shown, shown


def test_masks_a_password_of_a_url_that_has_its_separators() -> None:
    assert masked("see postgres://u:p@ssw0rd1x@h/db") == f"see postgres://{REDACTED}@h/db"
    assert masked("see postgres://u:pa/ssw0rd1x@h/db") == f"see postgres://{REDACTED}@h/db"
    assert masked("see http://h:8080/a@v1") == "see http://h:8080/a@v1"


@cases("text", PASSWORDS)
@pytest.mark.parametrize("word", ["Sommer24!", "hunter2", "correct-Horse7"])
def test_masks_a_password_that_is_short(text: str, word: str) -> None:
    assert word not in masked(text.replace("@", word))


@cases("prefix", ("", *PREFIXES))
def test_masks_a_value_that_goes_on_in_the_next_line_also_behind_a_prefix(prefix: str) -> None:
    for text in GOING_ON:
        body = text.replace("@a", f"{SECRET}A1").replace("@b", f"{SECRET}B2")
        lines = [prefix.replace("{n}", str(n % 10)) + line for n, line in enumerate(body.rstrip("\n").split("\n"))]
        shown = masked("\n".join(["begin", *lines, "end"]))
        assert "hidden" not in shown, shown
        assert shown.count("\n") == len(lines) + 1
        assert "bob" not in text or "bob" in shown


def test_a_name_of_one_mapping_says_nothing_about_the_value_of_the_next() -> None:
    text = f"env:\n- name: USER\n  value: bob\npassword:\n  value: {SECRET}\n- name: X\n  value: shown\n"
    assert masked(text) == text.replace(SECRET, REDACTED)


def test_masks_the_end_of_a_key_whose_beginning_is_not_there() -> None:
    body = "\n".join([f"{MIXED}ABCDEFGHIJKLMNO"] * 3)
    assert "hidden" not in masked(f"{body}\n-----END RSA PRIVATE KEY-----\n")


def sought(text: str) -> str:
    """`masked` without a look at the hints first."""
    text = compiled(secrets._NAMED).sub(secrets._without_value, text)
    for family in secrets._FAMILIES:
        text = compiled(family.shapes).sub(secrets._without_shape, text)
    text = without_placed(text, text.lower(), lambda encoded: masked(encoded) != encoded)
    return without_pairs(without_spoken(text, text.lower()))


@cases("line", [*SHOWN, *BARE, *HARMLESS, *(line.replace("s", "ſ").replace("k", "\N{KELVIN SIGN}") for line in SHOWN)])
def test_a_text_without_hints_holds_no_secret(line: str) -> None:
    assert masked(line) == sought(line)


@pytest.mark.thorough
@given(st.lists(st.sampled_from([p for line in SHOWN for p in re.split(r"(\W)", line)]), max_size=12).map("".join))
@settings(max_examples=300, deadline=None)
def test_hints_are_enough_for_any_text(text: str) -> None:
    assert masked(text) == sought(text)


def test_keeps_what_stands_around_a_secret() -> None:
    line = f"python train.py --hf-token {SECRET} --lr 1e-3 # https://me:{SECRET}@host/x"
    assert masked(line) == f"python train.py --hf-token {REDACTED} --lr 1e-3 # https://{REDACTED}@host/x"


def test_the_name_of_a_variable_decides_about_its_value() -> None:
    assert all(map(is_secret_name, ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "API_KEY")))
    assert not any(map(is_secret_name, ("NCCL_IB_PKEY", "PWD", "key")))
    assert masked_value("HF_TOKEN", "abc") == REDACTED
    assert masked_value("HF_TOKEN", "") == ""
    assert masked_value("NCCL_DEBUG", "INFO") == "INFO"


class _Holder(Struct, frozen=True):
    texts: tuple[str, ...]
    by_name: dict[str, object]
    inner: "_Holder | None" = None


def test_masks_every_text_within_and_keeps_what_holds_none() -> None:
    masked_all(("nothing!"[:-1], "/root!"[:-1]))  # equal texts that are others
    clean = _Holder(("nothing",), {"HOME": "/root", "n": 1})
    assert masked_all(clean) is clean
    held = _Holder((f"token={SECRET}",), {"HF_TOKEN": SECRET, "list": [f"password={SECRET}"]}, inner=clean)
    assert SECRET not in repr(masked_all(held))
    assert masked_all(held).inner is clean


def test_masks_both_sides_of_a_difference_in_a_secret_variable() -> None:
    difference = Difference(area="setting", what="HF_TOKEN", good="one", bad="two")
    assert masked_all(difference) == Difference(area="setting", what="HF_TOKEN", good=REDACTED, bad=REDACTED)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("TOKENkey_-=: '\"/@.a1\n\\s"), max_size=300))
def test_takes_any_text_and_settles(text: str) -> None:
    assert isinstance(masked(text), str)


@pytest.mark.thorough
@cases(
    "piece",
    ["a_", "a-", "--a-", "TOKEN", "_KEY", "token='", "://", "eyJ", "sk-", "key = ", "A_", "-----BEGIN ", " ",
     "AKIAIOSFODNN7EXAMPLE ", "glpat-", "a.", "machine a login ", " -u a", "SG.", "1:AA", "dp.a.", "aToken", "abc8Q~",
     "xoxb-1", "Pwd=", "http://a", "name: token\n", "a-token:\n ", "token:\n", "name: ", "echo ", " api_key: |\n  ",
     "aA1_", "sshpass -p", "openssl ", "--user a:", "kind: Secret\n", "0123456789:AA", "hooks.slack.com/",
     "shared access ", "QUJD", "QUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJD\n", '\\\\"', "curl -u", "zip -P", "http -a", "7z -p",
     "password for ", "htpasswd -b ",
     "a: b_token:\n", "p: kind: Secret\n", "1: <Password>\n", "p - - token: |\n", "1 2 3 x_key:\n", "machine a\n",
     'password: "\n', "? token\n", "- value: x\n  name: a_token\n", "pwd ", "token%3D", "postgres://a:b/",
     "password for a", "+/aB3",
     "-----END RSA PRIVATE KEY-----\n", 'token = """\n', "1 api_key: a\n1  ", "\tTRUE\t/\tTRUE\t1\t",
     "wandb key", "sessionid=a1",
     "a,password\n", "a|password|", "|token|x|\n", "token,x\n", "step,token,loss\n1,17,2.3\n",
     "chpasswd:\n a:b\n", "chpasswd <<E\na:b\n", 'setenv("TOKEN",', "a:10:b:c:",
     "token [", "mysql -p", 'type="password" ', "az login ",
     '["-a",', '["-a", "b"],', "- -a\n", "- --token\n- x\n", '"user": "a", "pass" = ', '("password",', "Secret('a1",
     'login("a",', "password2", "${A_TOKEN}", "--token TOKEN ",
     "aA", "secret set --value", '"username":"a",', "vault login -a ", "ssh-keygen -N "],
)  # fmt: skip
def test_takes_linear_time_on_hostile_text(piece: str) -> None:
    assert cpu_s(lambda: masked((piece * 10_000)[:10_000] + " token"), enough_s=0.5) < 0.5


def test_no_output_of_the_command_shows_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text(
        f"[rank0]: HF_TOKEN={SECRET}0\n"
        f"gpu1:1:1 [0] NCCL INFO NCCL_AUTH_TOKEN set by environment to {SECRET}1\n"
        f"gpu1:1:1 [0] NCCL WARN something odd with WANDB_API_KEY={SECRET}2\n"
        "2026-11-20 11:51:03 [rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 3, in <module>\n'
        f'[rank0]:     login(token="{SECRET}3")\n'
        f"[rank0]: ValueError: https://me:{SECRET}4@host refused --hf-token {SECRET}5\n"
        f"srun: error: gpu1: task 0: Exited with exit code 1: train.py --password {SECRET}6\n"
    )
    (run / "pyspy.1.txt").write_text(
        f"Process 1: python train.py --hf-token {SECRET}7\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 1 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2806)\n'
        f'        Arguments:\n            token: "{SECRET}8"\n    <module> (train.py:30)\n'
    )
    good = tmp_path / "good"
    good.mkdir()
    (good / "train.log").write_text(f"gpu1:1:1 [0] NCCL INFO NCCL_AUTH_TOKEN set by environment to {SECRET}9\n")
    files = {name: tmp_path / name for name in ("report.json", "report.html", "trace.json")}
    options = ["--json", files["report.json"], "--html", files["report.html"], "--trace", files["trace.json"]]
    main(["diagnose", "-v", str(run), "--baseline", str(good), *map(str, options)])
    printed = capsys.readouterr()
    assert "ValueError" in printed.out
    assert SECRET not in printed.out + printed.err
    for path in files.values():
        assert SECRET not in path.read_text()
    assert REDACTED in files["report.json"].read_text()
    assert json.loads(files["trace.json"].read_text())["traceEvents"]


def test_an_explained_line_does_not_repeat_its_secret(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "--explain-line", f"RuntimeError: CUDA error: out of memory HF_TOKEN={SECRET}"])
    assert SECRET not in capsys.readouterr().out


STATED = [
    ("the token is swordfish", "swordfish"), ("my secret was: tulipfields.", "tulipfields"),
    ("password: correct horse battery staple", "horse"), ("12:01 passphrase: alpha-bravo-tango-kilo", "bravo"),
    ("the passphrase is correct horse battery staple", "horse"), ('use the password "letmein" to log in', "letmein"),
    ("credentials: bob/builder77", "builder77"), ("login with user bob and password builder", "builder"),
    ("here's the wandb key: 0123abcd", "0123abcd"), ("PIN is 4711", "4711"),
    ("--redis-password='5241590000'", "5241590000"),
    ("DB_PASSWORD=ab\\\nLastPart9", "LastPart9"), ('export API_KEY="first\nsecond"\nx=1', "second"),
    ("header " + base64.b64encode(b"admin:t57lQorPQ").decode(), "YWRtaW4"),
    ("Private-MAC: " + "0123456789abcdef" * 4, "0123456789"), ("cookie MUNGE:AwQFAAAzEr8ho2b4dVKNq1c0e9T:", "AwQFAAAz"),
]  # fmt: skip
IN_PROSE = [
    "token length is 512", "tokens per second: 30", "password is wrong", "the token is masked", "the token is padding",
    "the token is uppercase", "Your token is saved to /root/.cache", "the next token is predicted",
    "the token is too long",
    "password: permission denied by server", "the password is correct", "password: must be at least eight characters",
    "user bob and password authentication failed", "PIN is 4 on the header", "wandb key not found",
    "secret manager is used",
    "the token is a word", "hf token cached", "password_min=12", "credentials: none", "the secret is mounted",
]  # fmt: skip


@cases("stated", STATED)
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2026-11-24 10:00:00,123 INFO "])
def test_masks_what_a_sentence_tells(stated: tuple[str, str], prefix: str) -> None:
    text, secret = stated
    lines = text.replace("\n", f"\n{prefix}") if "\\" not in text else text
    assert secret not in masked(f"step 1\n{prefix}{lines}\nstep 2\n")


@cases("line", IN_PROSE)
def test_leaves_sentences_about_tokens_and_passwords(line: str) -> None:
    assert masked(f"a\n{line}\nb") == f"a\n{line}\nb"
