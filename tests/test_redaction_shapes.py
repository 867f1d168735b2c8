"""A battery of some four hundred places in which people and programs write secrets, each with a drawn one."""

import json
import random
import string
from pathlib import Path

from allready.redaction import masked
from tests.cases import cases

SHAPES: list[list[str]] = json.loads((Path(__file__).parent / "fixtures" / "redaction_shapes.json").read_text())
"""What is drawn and how long it is, and the text with `<?>` in its place."""
ALPHABETS = {
    "mixed": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "base64": string.ascii_letters + string.digits + "+/",
    "digits": string.digits,
}
WEAK = ["hunter2", "P@ssw0rd", "changeme", "letmein123", "Summer2024!", "12345678"]
"""Passwords as people choose them."""
OF_PERSON = [
    "DB_PASSWORD={}", "export MYSQL_PWD='{}'", "password: {}", 'password = "{}"', "--password={}", '"password": "{}"',
    "http://u:{}@h/", "redis://:{}@h", "sshpass -p '{}' ssh", "my password is {}", "Password for bob: {}", "passwd={}",
    "PGPASSWORD='{}' psql", "<password>{}</password>", "mysql -uroot -p'{}'", "pass: '{}'", "curl -u bob:'{}' http://h",
    "ADMIN_PASS={}", "spring.datasource.password={}", "passphrase: {}", "- **Password**: `{}`", "db.pass={}",
    "user,password\nbob,{}\n", "| user | password |\n|---|---|\n| bob | {} |\n",
]  # fmt: skip
TABLES = [
    ("user,password\nbob,hunter2\n\neva,ok\n", "user,password\nbob,(redacted)\n\neva,ok\n"),
    ('name;note;pwd\n"a;b";x;"p;q1"\n', 'name;note;pwd\n"a;b";x;"(redacted)"\n'),
    ("step\ttoken\tloss\n1\tthe\t2.3\n2\t4096\t2.1\n", None),
    ("token,count\nthe,500\nAa9Zz8Qq7,1\n", "token,count\nthe,500\n(redacted),1\n"),
    ("tokens,loss\n4096,2.3\n", None),
    ("password\nchange it\n", None),
    ('[\n  "MY_TOKEN",\n  "SSL_CERT_FILE",\n  "PIP_CERT_9x",\n]\n', None),
    ("user,password\nbob,None\neva,yes\nten,-\n", None),
    ("user,password\none,two,three\n", None),
]
"""Tables, and what becomes of them; None for nothing."""


def drawn(kind: str, seed: int) -> str:
    """A secret of this kind."""
    name, length = kind.split()
    draw = random.Random(seed)
    return "".join(draw.choice(ALPHABETS[name]) for _ in range(int(length)))


@cases("kind, text", SHAPES)
def test_masks_it_where_people_and_programs_write_it(kind: str, text: str) -> None:
    for seed in range(3):
        secret = drawn(kind, seed)
        assert secret not in masked(text.replace("<?>", secret))


@cases("shape, word", [(shape, word) for shape in OF_PERSON for word in WEAK])
def test_masks_what_people_choose(shape: str, word: str) -> None:
    assert word not in masked(shape.format(word))


@cases("table, clean", TABLES)
def test_masks_a_column_that_is_called_so(table: str, clean: str | None) -> None:
    assert masked(table) == (table if clean is None else clean)


@cases(
    "line",
    [
        "password 'must' be set", "the password 'is' required", 'password "field" is missing', "pwd=/home/bob/runs",
        "Last password change: 2024", "fatal: password for x is required", "password: 8 characters or more",
        "helm install x --set replicas=3", "define('VERSION', '1.2.3')", "x.cc:10:abc:def:1234567",
        "az login --use-device-code", "chpasswd: entry", "node1:16:2:8:64000",
    ],
)  # fmt: skip
def test_leaves_what_only_looks_like_it(line: str) -> None:
    assert masked(line) == line


NAMES = [
    "KAGGLE_KEY", "ZOO_AUTH", "LDAP_BIND_PW", "GITHUB_PAT", "SVC_BEARER", "PGPASSWORD", "REDISCLI_AUTH", "FERNET_KEY",
    "api_key", "clientSecret", "redis-password", "encryptionKey", "auth_token", "smtp_password",
]  # fmt: skip
FORMS = [
    "env['{n}'] = '{s}'", 'set("{n}", "{s}")', "[{n}] => {s}", "{n} => '{s}'", '{n}[0]="{s}"', "<{n}>{s}</{n}>",
    '\\"{n}\\": \\"{s}\\"', "| {n} | {s} |", "- name: {n}\n  value: {s}", '{{"value": "{s}", "name": "{n}"}}',
    "    {n}:  {s}\n    NCCL_DEBUG:  INFO", '{n} = """{s}"""', "{n}='ab'\"{s}\"", "{n} = 'ab' + '{s}'",
    "environ.setdefault('{n}', '{s}')",
    "{n}?={s}", "{n} <- '{s}'", "set {n} to {s}", 'val {n}: String = "{s}"', "{n}: !!str {s}", "{n}; {s}",
    "**{n}**: {s}",
]  # fmt: skip
"""In what ways languages and formats put a name and its value together."""


@cases("name, form", [(name, form) for name in NAMES for form in FORMS])
def test_masks_what_is_put_together_with_a_secret_name(name: str, form: str) -> None:
    if (name, form) == ("redis-password", "{n}='ab'\"{s}\""):
        return  # no shell has such a name
    for seed in range(3):
        secret = drawn("mixed 20", seed)
        assert secret not in masked(form.format(n=name, s=secret))


ALIGNED = [
    ("HOST    USER   PASSWORD\ngpu07   root   hunter2\n", "HOST    USER   PASSWORD\ngpu07   root   (redacted)\n"),
    (
        "+------+----------+\n| user | password |\n+------+----------+\n| bob  | tulips   |\n",
        "+------+----------+\n| user | password |\n+------+----------+\n| bob  | (redacted)   |\n",
    ),
    ("│ user │ password │\n├──────┼──────────┤\n│ bob  │ tulips   │", None),
    ("| 主机 | 密码 |\n| --- | --- |\n| gpu07 | tulips9 |", "| 主机 | 密码 |\n| --- | --- |\n| gpu07 | (redacted) |"),
    ("TOKEN   FREQ   RANK\nthe     5000   1\n", None),
    ("SECRET           AGE\nmy-app-secret-1  5d\n", None),
    ("DB_PASSWORD   UNSET\nNCCL_DEBUG    INFO\n", None),
    ("NAME      READY   STATUS\ntrainer-0 1/1     Running\n", None),
    ("    pass  # of what the number is, is not known\n    if line.kind not in (1, 2):\n", None),
]
"""Tables whose cells stand below each other, and what becomes of them; None for nothing."""


@cases("text, expected", ALIGNED)
def test_masks_columns_that_stand_below_their_head(text: str, expected: str | None) -> None:
    if text.startswith("│"):
        assert "tulips" not in masked(text)
    else:
        assert masked(text) == (text if expected is None else expected)


HARMLESS = [
    'cfg["token_ids"] = torch.tensor([1, 2])', '("token", "llama-3-8b-instruct")', "tokens=8192x4096",
    "| TOKEN | 8.4k2 |", "NOPASSWD: ALL", "PASS: test_of_ranks9",
    '{"key": "model.layers.0.attn.q_proj.weight"}', '"cache_key": "f3o2y5h7qk6xk3kz2w4v"', "use_auth_token=True",
    "secretName: wandb-api-key-v1b2", "private_key_path=/root/.ssh/id_ed25519", "AUTH_TYPE=munge", "NCCL_IB_PKEY=0",
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io"',
    "cri-containerd-" + "3f9a" * 16 + ".scope",
    "%token_12 : [num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%arg3_1,))",
    "num_key_value_heads=8", "job-8f3a6b1c2d4e5f60a1b2c3d4e5f60718 started", "password-store:v1.7.4",
    "PWD=/home/bob/train",
    "密码错误，请重试", "密钥文件不存在：/etc/munge/munge.key", "token 数：4096", "past_key_values[0] = (k1v2, k3v4)",
    "invalid token 'layer12'", "凭据（HF_TOKEN、密码8位以上）没有",
]  # fmt: skip


@cases("text", HARMLESS)
def test_leaves_what_only_looks_alike(text: str) -> None:
    assert masked(text) == text


LISTED = [
    '["redis-server", "--requirepass", "{}"]', '["curl", "-u", "admin:{}", "http://h/ping"]',
    "['train.py', '--api-key', '{}', '--lr', '0.1']", '[\n  "redis-cli",\n  "-a",\n  "{}"\n]',
    "args:\n- --requirepass\n- {}\n- --port\n- '8080'\n", "args:\n  - curl\n  - -u\n  - 'admin:{}'  # of the hub\n",
    'smtp.login("bob@corp.com", "{}")', "client.username_pw_set('bob', '{}')", "HTTPBasicAuth('bob', '{}')",
    "{{'auth': {{'user': 'tr', 'pass': '{}'}}}}", '{{"username": "tr",\n "host": "h",\n "pwd": "{}"}}',
    "OrderedDict([('host', 'db'), ('password', '{}'), ('port', 3306)])", "Settings(token=SecretToken(value='{}'))",
    "SecretStr('{}')", "password2 = {}", "DB_PASSWORD_2={}", "--password2 {}", "mc alias set m http://h:9000 {} Ab3/x",
]  # fmt: skip
"""Secrets among the arguments of a command or a call, beside a user's name, or behind a name with a number."""


@cases("text, word", [(text, word) for text in LISTED for word in ["falcon54", "Summer2024!", "tundra-71"]])
def test_masks_an_argument_that_is_one_of_a_list(text: str, word: str) -> None:
    clean = masked(text.format(word))
    assert word not in clean
    assert clean.count("(redacted)") == 1
    assert masked(clean) == clean


@cases(
    "text",
    [
        "api_key: ${WANDB_API_KEY}", "api_key: ${oc.env:WANDB_API_KEY}", 'export HF_TOKEN="$(cat /run/secrets/hf)"',
        "export A_TOKEN=$MY_TOKEN;", "usage: train.py [--token TOKEN] [--api-key API_KEY]", "--hub_token HUB_TOKEN",
        '["python", "-u", "train.py", "--max-tokens", "4096"]', "args:\n- -u\n- train.py\n- --lr\n- 1e-4\n",
        "{'pass': 'ok', 'fail': '3'}", "[('password', 'username'), 3]", "getPassword('Enter it')", "log.login(a, b)",
        '["srun", "-p", "gpu", "-a", "x86"]', "token_2: hello there", "KeyError('model.layers.0.password')",
    ],
)  # fmt: skip
def test_leaves_references_usage_and_arguments_that_hold_none(text: str) -> None:
    assert masked(text) == text


@cases("text", ["password: ${DB_PASSWORD:-falcon54}", "api_key: ${oc.env:API_KEY,falcon54}"])
def test_a_reference_with_a_default_may_have_a_secret(text: str) -> None:
    assert "falcon54" not in masked(text)


AROUND = [
    "%22{}%22",
    "\x1b[31m{}\x1b[0m",
    "\\n{}\\r",
    "_{}_",
    "“{}”",
    "令牌{}。",
    "x{{{}}}y",
    "name-{}",
    "path=/tmp/{}.json",
]


@cases("around", AROUND)
@cases(
    "kind, token", [("mixed 36", "ghp_<?>"), ("mixed 34", "hf_<?>"), ("hex 32", "dapi<?>"), ("mixed 20", "glpat-<?>")]
)
def test_masks_a_token_whatever_stands_around_it(around: str, kind: str, token: str) -> None:
    secret = token.replace("<?>", drawn(kind, 1))
    assert secret not in masked(around.format(secret))
