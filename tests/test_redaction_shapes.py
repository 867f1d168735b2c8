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
