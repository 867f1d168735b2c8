"""Secrets known by where they stand: in a command, beside a name, in a block of YAML, in a Kubernetes Secret, or in
base64."""

import base64
import re
from collections.abc import Callable, Iterator

from allready.names import REDACTED
from allready.patterns import compiled, has_one
from allready.redaction.drawn import is_random, is_secret_alone

NAME = (
    r"(?:(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{0,60}?(?i:token|secret(?:[_-]?id)?|passw(?:or)?d|passphrase|credential|authtok"
    r"|(?:api|access|secret|private|auth|account|encryption|signing|preshared|shared)[_.-]?key(?:[_-]?id)?"
    r"|(?:ssh|become|db|smtp|ldap|bind|storage|comp|admin|root|user|sudo|proxy|ipmi|bmc|redis|sql|keystore)[._-]?pass)s?"
    r"(?:[_-]?[0-9]{1,2})?(?![a-z])|(?<![A-Za-z0-9_.-])[A-Z][A-Z0-9_]{0,60}_(?:KEY|PASS|PWD|PW|PAT|AUTH|COOKIE|JWT|BEARER)\b)"
)
"""A name in any case and style: `api_key`, `clientSecret`, `HF_TOKEN`, `StoragePass`, `KAGGLE_KEY`."""
NAME_HINTS = (
    "token", "secret", "pass", "credential", "key", "authtok", "_auth", "_pw", "_pat", "_jwt", "_cookie", "bearer"
)  # fmt: skip
"""A text without any has no such name."""
_QUOTED = r"(?:\"[^\"\n]{0,4096}\"|'[^'\n]{0,4096}'|[^\s\"'|;&<>]{1,4096})"
_QUOTED_IN = r"(?:\"[^\"\n]{0,4096}\"|'[^'\n]{0,4096}'|[^\s\"'|;&<>)]{1,4096})"
_NO_VALUE = r"(?!\$|\(redacted\)|<|\{|\[|[-\d.]{1,12}(?![\w.-])|(?i:none|null|true|false|\"\"|'')(?![\w-]))"
OF_SENTENCES = (
    r"(?i:is|was|are|not|must|the|for|with|from|and|has|have|had|does|did|cannot|could|should|will|can|your|please|enter"
    r"|fail\w*|invalid|incorrect|wrong|expired?|required?|missing|errors?|denied|refused|rejected|unexpected|unknown"
    r"|authenticat\w*|auth|login|enabled|disabled|set|unset|changed|prompt\w*|hash\w*|than|least|too|all|any|only"
    r"|use|used|using|given|provided|user|users|field|file|value|string|none|default|empty|optional|never|here|again|now"
    r"|but|when|if|this|that|long|short|enough|you|we|it)"
)
"""Words of a sentence behind `password`."""
_DRAWN = r"(?=[^\s\"']{0,200}[a-z])(?=[^\s\"']{0,200}[A-Z])(?=[^\s\"']{0,200}[0-9])"
_TOLD = (
    r"(?!\(redacted\)|<|[-\d.,%]{1,14}(?:[\s\"'`,;，。]|$))"
    r"(?=[^\s\"'`”,;，。]{0,200}[0-9!@#$%^&*+=])[^\s\"'`”,;，。]{4,512}"
)
"""A password in a sentence: it has something that a word has not."""

_NO_NUMBER = r"(?![-+]?\d[\d.,eE+%-]{0,100}(?:[\s\"'│┃|]|$))"
_SPOKEN_WORDS = ("密码", "口令", "令牌", "密钥", "パスワード", "비밀번호", "пароль")
_OF_WHOM = r"(?:\s?[（(][^（()）\n]{1,40}[)）])?"
_SPOKEN = r"(?:密码|口令|令牌|密钥|パスワード|비밀번호|[Пп]ароль)"

_PREFIX_ENDS = r"(?<=[\]:|>#+Z0-9-])[ \t]|(?<=[+>|#\t\]])|(?<=\]:)|(?<= [FP] )"
"""How what a log puts in front of a line ends."""

_COMMANDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sshpass",), r"(?P<before>\bsshpass\s{1,4}-p\s{0,4})" + _QUOTED),
    (("redis-cli",), r"(?P<before>\bredis-cli\s[^\n|;&]{0,200}?-a\s{1,4})" + _QUOTED),
    (("ipmitool",), r"(?P<before>\bipmitool\s[^\n|;&]{0,200}?-P\s{1,4})" + _QUOTED),
    (("snmp",), r"(?P<before>\bsnmp[a-z]{2,9}\s[^\n|;&]{0,200}?-[cX]\s{1,4})" + _QUOTED),
    (("snmp",), r"(?P<before>\bsnmp[a-z]{2,9}\s[^\n|;&]{0,200}?-A\s{1,4})" + _QUOTED),
    (("openssl",), r"(?P<before>\bopenssl\s[^\n|;&]{0,200}?-[kK]\s{1,4})" + _QUOTED),
    (
        ("<(echo",),
        r"(?P<before>(?i:pass(?:word)?|secret|token|key)[^\n]{0,30}<\((?:echo|printf)\s(?:-n\s)?)" + _QUOTED_IN,
    ),
    (("-pass",), r"(?P<before>-pass(?:in|out)?\s{1,4}pass:)" + _QUOTED),
    (("--user ", "--user=", "-user "), r"(?P<before>\s--(?:proxy-)?user[ =][\"']?[^\s:'\"]{1,128}:)[^\s'\"]{1,512}"),
    (("--from-literal",), r"(?P<before>--from-literal[ =][\"']?[\w.-]{1,100}=)" + _QUOTED),
    (
        ("requirepass", "masterauth", "bindpw", "rootpw", "authtok", "psk"),
        r"(?m:(?P<before>(?:^|" + _PREFIX_ENDS + r")[ \t]*(?:requirepass|masterauth|bindpw|rootpw|(?:\w{1,30}_)?authtok"
        r"|wpa_psk)[ \t=]{1,8}))(?!--\w)" + _QUOTED,
    ),
    (
        ("pass =", "pass=", "pwd =", "pwd="),
        r"(?m:(?P<before>(?:^|"
        + _PREFIX_ENDS
        + r")[ \t]*(?:pass|pwd|PASS)[ \t]?=[ \t]?))(?!~?/)"
        + _NO_VALUE
        + _QUOTED,
    ),
    (
        ("secret",),
        r"(?P<before>\bsecrets?(?:manager)? (?:set|create|put|update|add)[^\n|;&]{0,200}?\s--"
        r"(?:value|body|secret-string|string-value)[ =])" + _QUOTED,
    ),
    (("configure set",), r"(?P<before>\bconfigure set \S{0,60}(?:secret|token|password)\S{0,40}\s{1,4})" + _QUOTED),
    (("vault login",), r"(?P<before>\bvault login\s(?:-\S{1,60}\s){0,4})(?!-|\()" + _QUOTED),
    (("ssh-keygen",), r"(?P<before>\bssh-keygen\s[^\n|;&]{0,200}?-N\s{1,4})(?!\"\"|'')" + _QUOTED),
    (
        ("username",),
        r"(?P<before>[\"']username[\"']\s?:\s?[\"'][^\"'\n]{1,99}[\"'],\s{0,20}[\"']key[\"']\s?:\s?\")[^\"\n]{8,400}",
    ),
    (("curl",), r"(?P<before>\bcurl\s(?:[^\n|;&]{0,400}?\s)??(?:-b|--cookie)[ =][\"']?[\w.-]{1,99}=)[^\s\"']{1,4096}"),
    (("curl",), r"(?P<before>\bcurl\s(?:[^\n|;&]{0,400}?\s)??-[a-zA-Z]{0,6}u[ =]?[\"']?[^\s:'\"]{1,128}:)" + _QUOTED),
    (("mysql", "mariadb"), r"(?P<before>\b(?:mysql|mariadb)[a-z-]{0,9}\s[^\n|;&]{0,200}?\s?-p)(?=[\"'])" + _QUOTED),
    (('"password"', "'password'"), r"(?P<before>\btype=[\"']password[\"'][^>\n]{0,200}?\bvalue=[\"'])[^\"'\n]{1,512}"),
    (
        ('"password"', "'password'"),
        r"(?P<before><input\s(?=[^>\n]{0,400}?\btype=[\"']password[\"'])[^>\n]{0,200}?\bvalue=[\"'])[^\"'\n]{1,512}",
    ),
    (
        (" -a ", "--auth"),
        r"(?P<before>\bhttps?\s(?:[^\n|;&]{0,200}?\s)??(?:-a|--auth)[ =][\"']?[^\s:'\"]{1,128}:)[^\s'\"]{1,512}",
    ),
    (("ldap",), r"(?P<before>\bldap[a-z]{2,9}\s(?:[^\n|;&]{0,300}?\s)??-w\s{1,4})" + _QUOTED),
    (("mongo",), r"(?P<before>\bmongo(?:sh|dump|restore|export|import)?\s[^\n|;&]{0,300}?\s-p[ =]?)" + _QUOTED),
    (
        ("smbclient", "mount.cifs"),
        r"(?P<before>\b(?:smbclient|mount\.cifs)\s[^\n|;&]{0,200}?-U\s?[^\s%]{1,128}%)" + _QUOTED,
    ),
    (
        ("env ", "arg ", "setenv", "set -"),
        r"(?P<before>\b(?:ENV|ARG|setenv|set[ \t]{1,4}-[A-Za-z]{1,4})[ \t]{1,4}"
        + NAME
        + r"[ \t]{1,4})"
        + _NO_VALUE
        + _QUOTED,
    ),
    (  # a name and its value as arguments, in most languages
        ("setenv", "set_var", "putenv", "define(", "setproperty", "setdefault", "setattr", "environmentvariable"),
        r"(?P<before>\b\w{0,40}(?i:setenv|set_var|putenv|define|setproperty|setdefault|environmentvariable)\(\s?[\"']"
        + NAME
        + r"[\"'],\s?)(?:\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}')",
    ),
    (("env{",), r"(?P<before>\bENV\{[\"']?" + NAME + r"[\"']?\}\s?=\s?)" + _NO_VALUE + _QUOTED),
    (("credentials(",), r"(?P<before>\bCredentials\((?:\"[^\"\n]{0,253}\",\s?){3})\"[^\"\n]{1,512}\""),
    (("secret_key_base",), r"(?P<before>\bsecret_key_base\s?[:=]\s?)" + _NO_VALUE + _QUOTED),
    (
        (" key [", "token [", "password [", "passphrase ["),
        r"(?P<before>(?i:\b(?:password|passphrase|secret(?: access)? key|api key|token)) \[[^\]\n]{0,60}\]:[ \t]{1,3})"
        + _QUOTED,
    ),
    (("az login",), r"(?P<before>\baz login\s[^\n|;&]{0,300}?\s-p[ =])" + _QUOTED),
    (("ipa-",), r"(?P<before>\bipa-[a-z-]{2,30}\s(?:[^\n|;&]{0,300}?\s)??-w[ =])" + _QUOTED),
    (("lftp",), r"(?P<before>\blftp\s(?:[^\n|;&]{0,200}?\s)??-u\s{1,4}[^\s,]{1,128},)" + _QUOTED),
    (
        ("poetry config",),
        r"(?P<before>\bpoetry config (?:http-basic\.\S{1,100} \S{1,128}|pypi-token\.\S{1,100}) )" + _QUOTED,
    ),
    (("_authtoken",), r"(?P<before>_authToken[ =])" + _NO_VALUE + _QUOTED),
    (("/pass:", "/password:", "/pwd:"), r"(?P<before>(?i:\s/(?:pass(?:word)?|pwd)):)" + _QUOTED),
    (("useradd", "usermod"), r"(?P<before>\buser(?:add|mod)\s(?:[^\n|;&]{0,200}?\s)??-p[ =])" + _QUOTED),
    (
        ("mkpasswd",),
        r"(?P<before>\bmkpasswd\s(?:-\S{1,30}\s(?:sha-?\d{1,3}|md5|yescrypt|bcrypt)?\s?){0,3})(?!-)" + _QUOTED,
    ),
    (("racadm", "sqlcmd"), r"(?P<before>\b(?:racadm|sqlcmd)\s[^\n|;&]{0,200}?\s-[pP]\s{0,2})" + _QUOTED),
    (("freerdp",), r"(?P<before>\b[xw]l?freerdp\d?\s[^\n|;&]{0,200}?\s/p:)" + _QUOTED),
    (("net ads", "net rpc"), r"(?P<before>\bnet (?:ads|rpc)\s[^\n|;&]{0,200}?-U\s?[^\s%]{1,128}%)" + _QUOTED),
    (("addauth",), r"(?P<before>\baddauth \w{1,20} [^\s:]{1,128}:)" + _QUOTED),
    (("<string>",), r"(?P<before><key>" + NAME + r"</key>\s{0,60}<string>)" + _NO_VALUE + r"[^<]{1,4096}"),
    (("openssl passwd",), r"(?P<before>\bopenssl passwd\s(?:-\S{1,20}\s){0,4})(?!-)" + _QUOTED),
    (  # Terraform's state
        ('"value"',),
        r"(?P<before>[\"']" + NAME + r"[\"']\s?:\s{0,9}\{[^{}]{0,300}?\"value\"\s?:\s?)\"[^\"\n]{1,4096}\"",
    ),
    (("add-authtoken",), r"(?P<before>\badd-authtoken[ =])" + _QUOTED),
    (
        ("set_token(", "save_token(", "set_password(", "set_secret("),
        r"(?P<before>\b(?:set|save)_(?:token|password|secret)\(\s?)(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')",
    ),
    (  # a form that is sent
        ('="password"', '="token"', '="secret"'),
        r"(?P<before>\bname=\"(?:password|token|secret)\"\r?\n\r?\n)[^\r\n]{1,512}",
    ),
    (  # as programs print a table of names
        ("password  ", "token  ", "secret  ", "key  "),
        r"(?m:^(?P<before>[ \t]{0,20}[a-z_]{0,40}(?:password|token|secret|_key)[ \t]{2,40}))"
        + _DRAWN
        + r"[^\s\"']{12,512}(?m:(?=[ \t]*\r?$))",
    ),
    (
        ("echo ", "printf "),
        r"(?P<before>\b(?:echo|printf)\s{1,4}(?:-[neE]{1,3}\s{1,4})?)"
        + _NO_VALUE
        + _QUOTED
        + r"(?=\s{0,4}>{1,2}[ \t]{0,4}[^\s;|&]{0,200}(?:token|secret|passw|credential|id_rsa|id_ed25519|_key))",
    ),
    (("wpa_passphrase",), r"(?P<before>\bwpa_passphrase\s{1,4}\S{1,64}\s{1,4})" + _QUOTED),
    (("rootpw",), r"(?P<before>\brootpw\s(?:--\w{1,20}\s){1,4})(?!--)" + _QUOTED),
    (("net user",), r"(?P<before>(?i:\bnet user) [^\s/|]{1,128}\s{1,4})(?![/*|])[^\s|;&]{1,128}(?=[^\n]{0,100}/)"),
    (
        ("<<<",),
        r"(?P<before>(?:-stdin\b|--with-token|chpasswd|sudo -S|passwd\b|\bkinit\b|\brealm join|\bsu\b|\bcryptsetup\b)"
        r"[^\n|;&<]{0,120}"
        r"<<<\s?)" + _QUOTED,
    ),
    (  # ~/.pgpass
        (":5432:", ":5433:", ":6432:", ":*:"),
        (
            r"(?m:^(?P<before>[\w.*-]{1,253}:(?:\d{2,5}|\*):(?:[\w*-]{1,64}:){2})"
            r"(?=\S{0,200}[A-Za-z])(?=\S{0,200}[\d!#-])[^\s:]{6,512}(?=[ \t]*\r?$))"
        ),
    ),
    (("rabbitmqctl",), r"(?P<before>\brabbitmqctl\s(?:add_user|change_password)\s\S{1,128}\s{1,4})" + _QUOTED),
    (("/user:",), r"(?P<before>(?i:\bnet use\b)[^\n|;&]{0,200}?/user:\S{1,128}\s{1,4})" + _QUOTED),
    (("sqlplus",), r"(?P<before>\bsqlplus\s(?:-\S{1,9}\s){0,4}[\w$#]{1,128}/)[^\s@/]{1,512}"),
    (("vault kv", "vault write"), r"(?P<before>\bvault (?:kv put|kv patch|write)\s[^\n|;&=]{1,200}=)" + _QUOTED),
    (
        ("auth",),
        (
            r"(?P<before>(?i:\b(?:proxy_?)?(?:http)?(?:basic|digest)?_?auth)\s?=?\s?\(\s?[\"'][^\"'\n]{1,128}[\"'],\s?)"
            r"(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')"
        ),
    ),
    (  # who and with what, as arguments of a call
        ("login(", "auth(", "authenticate(", "pw_set("),
        (
            r"(?P<before>(?i:login|auth|authenticate|pw_set)\(\s?[\"'][^\"'\n]{1,128}[\"'],\s?)"
            r"(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')(?=\s?[,)])"
        ),
    ),
    (  # a short name, with who beside it
        ('pass"', "pass'", "pass =", "pass=", 'pwd"', "pwd'", "pwd =", "pwd=", 'pw"', "pw'"),
        (
            r"(?P<before>(?<![A-Za-z0-9_])(?:user(?:_?name)?|login|account|email)[\"']?\s?[:=]\s?[\"'][^\"'{}\n]{0,128}[\"'],"
            r"[^{}]{0,200}?(?<![A-Za-z0-9_])(?:pass|pwd|pw)[\"']?\s?[:=]\s?)(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')"
        ),
    ),
    (  # pairs in a list, as an OrderedDict shows itself
        ("password'", 'password"', "passwd", "passphrase"),
        (
            r"(?P<before>(?:(?<=\[)|(?<=, )|(?<=,))[(\[][\"'][\w.-]{0,60}(?i:passw(?:or)?d|passphrase)[\"'],\s?)"
            r"(?![\"'](?:user_?(?:name)?|login|email|token|host)[\"'])(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')(?=[)\]])"
        ),
    ),
    (  # a class whose name says what it hides
        ("secret", "password", "credential", "apikey", "accesskey", "authtoken"),
        (
            r"(?P<before>\b(?:[A-Z]\w{0,40})?(?:Secret|Password|Credential|ApiKey|AccessKey|AuthToken)\w{0,40}"
            r"\((?:\w{1,30}=)?)(?=[\"'][^\"'\s/]{0,200}[0-9])(?:\"[^\"\s/]{6,512}\"|'[^'\s/]{6,512}')(?=[,)])"
        ),
    ),
    (
        (".login(",),
        r"(?P<before>\.login\((?:[^)\n]{0,200},\s?)?(?:key|token|api_key)\s?=\s?)(?:\"[^\"\n]{1,512}\"|'[^'\n]{1,512}')",
    ),
    (("secretaccesskey",), r"(?P<before>\bSecretAccessKey\s?[:=]\s?)" + _NO_VALUE + _QUOTED),
    (("</",), r"(?P<before><" + NAME + r">\s{1,40})" + _NO_VALUE + r"[^<\s]{1,4096}"),
    (
        ("pass:",),
        r"(?m:(?P<before>(?:^|"
        + _PREFIX_ENDS
        + r")[ \t]*(?:- )?pass:[ \t]{1,4}))"
        + _NO_VALUE
        + _QUOTED
        + r"(?m:(?=[ \t]*$))",
    ),
    (("mosquitto_",), r"(?P<before>\bmosquitto_[a-z]{2,4}\s[^\n|;&]{0,300}?\s-P\s{1,4})" + _QUOTED),
    (("zip ",), r"(?P<before>\b(?:un)?zip\s(?:[^\n|;&]{0,200}?\s)??-P\s{1,4})" + _QUOTED),
    (("7z",), r"(?P<before>\b7z[ar]?\s[^\n|;&]{0,200}?\s-p)" + _QUOTED),
    (
        ("htpasswd",),
        r"(?P<before>\bhtpasswd[ \t](?=[^\n|;&]{0,40}?-[A-Za-z]{0,6}b)[^\n|;&\"'{}]{1,200}[ \t])[^\s|;&\"']{1,512}",
    ),
    (("psk ", "xauth ", "eap "), r"(?P<before>:\s{0,4}(?:PSK|XAUTH|EAP)\s{1,4})\"[^\"\n]{1,512}\""),
    (("identified",), r"(?P<before>(?i:\bidentified (?:with \S{1,60} )?by (?:password )?))'[^'\n]{1,512}'"),
    (("password '",), r"(?P<before>(?i:\bpassword ))(?!'" + OF_SENTENCES + r"')'[^'\n]{1,512}'"),
    (("send ",), r"(?P<before>assword[^\n]{0,40}\n?[^\n]{0,40}\bsend\s{1,4}(?:--\s{1,4})?)\"[^\"\n]{1,512}\""),
    (
        ("true\t", "false\t"),
        r"(?m:(?P<before>\t(?:TRUE|FALSE)\t/\S{0,200}\t(?:TRUE|FALSE)\t\d{1,12}\t[^\t\n]{1,200}\t)[^\s]{4,4096}$)",
    ),
    (("_auth",), r"(?P<before>(?<![A-Za-z0-9])_auth\s?=\s?[\"']?)" + _NO_VALUE + r"[^\s\"']{4,4096}"),
    (
        (" is ", " was ", " for ", " to "),
        r"(?P<before>(?i:\b(?:password|passphrase|token|secret|api key)(?: for [^\s:]{1,128})?"
        r"(?::| is:?| was:?| set to| changed to) {1,4})[\"'`]?)" + _TOLD,
    ),
    (_SPOKEN_WORDS, r"(?P<before>" + _SPOKEN + _OF_WHOM + r"\s?(?:[是为は]\s?[\"'“「]?|[“「]))" + _TOLD),
    (
        _SPOKEN_WORDS,
        (
            r"(?P<before>(?:"
            + _SPOKEN
            + _OF_WHOM
            + r"\s?[:=：]\s?[\"'“「]?|(?:密码|口令|パスワード|비밀번호)[ \t](?=[!-~]{0,200}[0-9])))"
            r"(?!\(redacted\))" + _NO_NUMBER + r"(?!~?/)[^\s\"'`”,;，。\u0080-\uffff]{6,512}(?![^\s\"'`”,;，。])"
        ),
    ),
    (("account.key.",), r"(?P<before>\baccount\.key\.[\w.-]{1,200}[ \t]{1,8})[^\s]{8,512}"),
    (("/hook/", "/send?key="), r"(?P<before>/bot/v[0-9]/hook/|/webhook/send\?key=)[A-Za-z0-9_-]{8,200}"),
    (("anaconda.org/t/",), r"(?P<before>anaconda\.org/t/)[A-Za-z0-9_-]{8,200}"),
    ((".login(",), r"(?P<before>\.login\([\"'])[^\s\"']{16,512}"),
    ((" login -k", " login --api"), r"(?P<before>\blogin (?:-k|--api-?key)[ =])" + _QUOTED),
    (("service-principal",), r"(?P<before>--service-principal\s[^\n|;&]{0,300}?\s-p[ =])" + _QUOTED),
    (
        ("mc alias set", "mc config host"),
        r"(?P<before>\bmc (?:alias set|config host add) \S{1,99} \S{1,300} )" + _QUOTED + r" " + _QUOTED,
    ),
    (("crumb",), r"(?P<before>(?i:crumb)[\"']?\s?[:=]\s?[\"']?)[0-9a-f]{32,128}"),
    (
        ("authorization",),
        r"(?P<before>(?i:authorization): [A-Za-z][A-Za-z0-9-]{1,30} )(?=[^\s\"']*[0-9])[^\s\"']{16,4096}",
    ),
    (("mit-magic-cookie",), r"(?P<before>MIT-MAGIC-COOKIE-1\s{1,4})[0-9a-fA-F]{16,}"),
    (
        ("authorization",),
        (
            r"(?P<before>(?i:authorization)[\"']?\s?[:=,]\s?[\"']?(?i:basic|bearer|token|apikey|digest|negotiate)"
            r"\s{1,4})[^\s\"',;]{4,4096}"
        ),
    ),
    (
        ("-stdin", "--with-token", "chpasswd", "sudo -s", "passwd", "kinit", "cryptsetup"),
        r"(?P<before>\b(?:echo|printf)\s{1,4}(?:-[ne]{1,2}\s{1,4})?)"
        + _QUOTED
        + r"(?=\s{0,4}\|[^\n]{0,200}?(?:-stdin\b|--with-token|chpasswd|sudo -S|passwd|\bkinit\b|\bcryptsetup\b))",
    ),
)
_BY_HINT: dict[str, list[int]] = {}
for _number, (_hints, _) in enumerate(_COMMANDS):
    for _hint in _hints:
        _BY_HINT.setdefault(_hint, []).append(_number)

_CHPASSWD = (
    r"(?m)(^(?P<indent>[ \t]*)chpasswd:[ \t]*\n)(?:(?P=indent)[ \t]+\S[^\n]{0,500}\n?){1,200}"
    r"|(\bchpasswd\b[^\n|;&<]{0,100}<<-?[ \t]?[\"']?\w{1,40}[\"']?[ \t]*\n)(?:[^\s:]{1,60}:\S{1,500}\n){1,200}"
)
"""Users with their passwords: of cloud-init, and in a here-document."""
_LOGIN = r"(?m)^([ \t]*(?:- )?[\w.-]{1,60}:)(?!\(redacted\))\S{1,500}"
_BESIDE = (
    r"(?P<before>[\"']?\b(?:(?i:name|key)[\"']?\s?[:=]|variable)\s?[\"']?"
    + NAME
    + r"[\"']?\s{0,60}[,{]?\s{0,60}[\"']?(?i:value|default)[\"']?\s?[:=]\s?)"
    + _NO_VALUE
    + r"(?![|>])"
    + r"(?:\"(?:[^\"\n\\]|\\.){1,4096}\"|'[^'\n]{1,4096}'|[^\s\"',}\]]{1,4096})"
)
"""`name: HF_TOKEN` with `value: ...` behind it, in YAML, JSON, XML and HCL."""
_BESIDE_IT = (
    r"(?P<before>[\"']?\bvalue[\"']?\s?[:=]\s?)(?P<value>\"(?:[^\"\n\\]|\\.){1,4096}\"|'[^'\n]{1,4096}')"
    r"(?P<behind>\s{0,9},\s{0,60}[\"']?(?:name|key)[\"']?\s?[:=]\s?[\"']?" + NAME + r"[\"'])"
)
_KEY_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_LINE_OF_64 = r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{4,76}(?=\r?$)"
_IN_ELEMENTS = r"(?P<before><name>\s{0,9}" + NAME + r"\s{0,9}</name>\s{0,60}<value>)" + _NO_VALUE + r"[^<]{1,4096}"
"""The same in Hadoop's configurations."""
_LONG = r"(?<![A-Za-z0-9+/_.~-])[A-Za-z0-9+/_.~-]{16,4096}={0,2}"
_AFTER_NAME = NAME + r"[\"']?(?:\s{1,4}|\s?[=:][=>]?\s{0,40}[\"'`]?)$"
"""`aws configure set aws_secret_access_key ...`, `credential=...`, `SecretID:      ...`"""
_APART = (
    r"(?P<before>(?P<name>"
    + NAME
    + r")[\"']?(?:[ \t]{1,60}\.{3,80}[ \t]|[ \t]{0,60}[│┃|][ \t]{0,4}|[ \t]?=>[ \t]{0,4}|:[ \t]{5,60})[\"']?)"
    + _NO_VALUE
    + _NO_NUMBER
    + r"(?!~?/|[\w/]{1,40}=)(?P<value>(?=[^\s\"'│┃|]{0,200}[0-9!@#$%^&*+=])[^\s\"'│┃|]{8,512})"
)
"""A name and its value some way apart: leader dots, a row of a table, `=>`, the columns of `kubectl describe`."""
_COUNTED = r"(?i:.*tokens|secrets?|token)"
"""Names that tables and manifests also have for counts and for names of secrets."""
_APART_MARKS = (" ...", "│", "┃", "|", "=>", ":     ", ":\t")
_AFTER_KEY = (
    r"(?<![A-Za-z0-9_.-])(?!(?i:\w{0,40}(?:cache|store|hash|graph|group|sort|public|partition)))"
    r"[A-Za-z0-9_.-]{1,60}(?i:[_.-](?:key|api|pat|sas|auth|dsn))[\"']?\s?[:=]\s?[\"']?$"
)
_AFTER_OPTION = r"--[A-Za-z0-9_-]{1,40}[_-]key(?:[ \t]{1,4}|[\"'],\s?)[\"']?$"
_IN_LIST = NAME + r"[\"']?\s?[:=]\s{0,20}\[[^\]\[]{0,70}$"
_AFTER_SET = r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{2,60}=[\"']?$"
_PREFIXED = r"([A-Za-z][A-Za-z0-9]{0,11}(?:[_-][a-z0-9]{1,12}){0,3})[_.-]([A-Za-z0-9._-]{20,400})"
"""`xyz_` and what looks drawn at random: the shape that services give their tokens."""
_OF_SECRETS = r"(?:.*[_-])?(?:secret|token|key|sk|pat)"
_OF_DISCORD = r"([A-Za-z0-9_-]{23,28})\.[A-Za-z0-9_-]{6,7}\.([A-Za-z0-9_-]{27,40})"
_ID_AND_KEY = r"([0-9a-f]{32})\.[A-Za-z0-9]{16}"
_ENCODED = (
    r"(?<![A-Za-z0-9+/=_.-])(?:(?:[A-Za-z0-9+/]{32,4096}\n[ \t]{0,40})+[A-Za-z0-9+/]{0,4096}|[A-Za-z0-9+/]{20,65536})"
    r"={0,2}(?![A-Za-z0-9+/=_.-])"
)
"""What may be base64, also over several lines of one text."""
LOOK_BACK = 100

_KEY_LINE = (
    r"(?m)(?P<indent>[ \t]*(?:- |(?P<ask>\? ))?)(?:export[ \t]+)?[\"']?(?P<name>[\w./-]{1,120})[\"']?[ \t]*"
    r"(?:(?P<sign>[:=])(?:(?:(?<==)|[ \t]+)(?P<rest>[^\n]*))?|(?(ask)[ \t]*|(?!)))$"
)
_GATE = (
    r"(?mi)^[ \t]*(?:[-?] )?(?:(?:name:|export)[ \t]{1,4})?[\"']?[\w./-]{0,60}"
    r"(?:token|secret|pass|key|credential|_auth|_pw|_pat|_jwt|bearer)[\w-]{0,12}"
    r"[\"']?[ \t]*(?:[:=][^\n]*)?(?:\n[ \t]*(?:[-:] |[ \t])|[\"']{3}|(?<=[:=])[ \t]*[\"'][^\"'\n]*\n)"
    r"|^[ \t]*(?:- )?value:[^\n]*\n[ \t]*name:"
)
_IS_NAME = NAME + r"$"
_BLOCK = r"(?:!!?\w+[ \t]+)?[|>][-+0-9]{0,2}[ \t]*(?:#.*)?$"
_OF_VALUE = frozenset({"value", "current", "plaintext", "plain", "literal", "content", "default", "data"})
"""Keys below a secret's name that hold it."""
_OPEN = r"[rbf]?(\"{3}|'{3}|\"|')(?:(?!\1)[^\\\n]|\\[^\n])*$"
"""A quote that is not closed on its line."""
MAX_QUOTED = 100
_MAPPING = r"[ \t]*(?:- )?[\"']?[\w./-]+[\"']?[ \t]*:(?:[ \t]|$)"
_OF_KUBERNETES = r"(?m:^[ \t]*(?:- )?kind:[ \t]*[\"']?Secret\b)|\"kind\"\s?:\s?\"Secret\""
_FLOW_DATA = r"(\b(?:data|stringData)[\"']?\s?:\s?\{)([^{}]{1,1000000})(\})"
_FLOW_VALUE = r"(:\s?)(?:([\"'])(?:[^\"'\\]|\\.)*[\"']|[^\s,{}\"']+)"
_SPLIT = r"(?m)(^---.*\n)"
MAX_WORDS = 3


def without_placed(text: str, small: str, holds_secret: Callable[[str], bool]) -> str:
    """The text without the secrets that this module knows.

    small: the same in small letters.  holds_secret: asked of what stands there in base64.
    """
    for number in sorted({number for hint, numbers in _BY_HINT.items() if hint in small for number in numbers}):
        text = compiled(_COMMANDS[number][1]).sub(rf"\g<before>{REDACTED}", text)
    if has_one(NAME_HINTS, small) and has_one(_APART_MARKS, text):
        text = compiled(_APART).sub(_without_apart, text)
    if "chpasswd" in small:
        text = compiled(_CHPASSWD).sub(_without_logins, text)
    if "-end" in small and "private key" in small:
        text = _without_tails(text)
    if ("value" in small or "default" in small) and (not small.isascii() or has_one(NAME_HINTS, small)):
        text = compiled(_BESIDE_IT).sub(_without_first, text)
        text = compiled(_BESIDE).sub(rf"\g<before>{REDACTED}", text)
        text = compiled(_IN_ELEMENTS).sub(rf"\g<before>{REDACTED}", text)
    text = compiled(_ENCODED).sub(lambda match: _if_encoded(match[0], holds_secret), text)
    text = compiled(_LONG).sub(_if_token, text)
    if "secret" in small and compiled(_OF_KUBERNETES).search(text):
        text = "".join(
            _secret_document(part) if compiled(_OF_KUBERNETES).search(part) else part
            for part in compiled(_SPLIT).split(text)
        )
    if "\n" in text and has_one(NAME_HINTS, small) and compiled(_GATE).search(text):
        text = _walked(text, lambda name, around: compiled(_IS_NAME).match(name) is not None or _is_list(around))
    return text


def _without_apart(match: re.Match[str]) -> str:
    if compiled(_COUNTED).fullmatch(match["name"]) and not is_random(match["value"]):
        return match[0]
    return match["before"] + REDACTED


def _without_logins(match: re.Match[str]) -> str:
    head = match[1] or match[3]
    return head + compiled(_LOGIN).sub(rf"\1{REDACTED}", match[0][len(head) :])


def _if_encoded(text: str, holds_secret: Callable[[str], bool]) -> str:
    """`(redacted)` for base64 of a text in which a secret stands; the last line may be of something else."""
    for end in (len(text), text.rfind("\n")):
        try:
            data = base64.b64decode("".join(text[: max(0, end)].split()), validate=True)
        except ValueError:
            continue
        # What is drawn at random, or a path, decodes to bytes of any kind.
        is_text = data.isascii() and all(byte >= ord(" ") or byte in b"\t\n\r" for byte in data)
        if is_text and holds_secret(data.decode("ascii")):
            return REDACTED + (text[end:] or text[len(text.rstrip()) :])
    return text


def _if_token(match: re.Match[str]) -> str:
    """A long word, `(redacted)` if it looks drawn at random and something says that it is a secret."""
    bare = match[0].lstrip("+")  # the mark of a diff
    mark, word = match[0][: -len(bare)] if bare else match[0], bare.rstrip(".-")
    rest = bare[len(word) :]
    before = match.string[max(0, match.start() - LOOK_BACK) : match.start()]
    if any(is_secret_alone(part, before) for part in (word.rstrip("="), *word.split("-"))):
        return mark + REDACTED + rest
    if len(word) < 20 or word.isalpha() or word.startswith("_Z"):  # as compilers write C++ names
        return match[0]
    if (parts := compiled(_PREFIXED).fullmatch(word)) and any(
        _is_drawn(p, parts[1]) for p in re.split(r"[.~]", parts[2])
    ):
        return mark + REDACTED + rest
    if (triple := compiled(_OF_DISCORD).fullmatch(word)) and is_random(triple[1]) and is_random(triple[2]):
        return mark + REDACTED + rest
    if (pair := compiled(_ID_AND_KEY).fullmatch(word)) and is_random(pair[1]) and not word.islower():
        return mark + REDACTED + rest
    if not before or before[-1] not in " \t\n=:\"'":
        return match[0]
    if "[" in before and is_random(word, with_digits=False) and compiled(_IN_LIST).search(before):
        return mark + REDACTED + rest
    if not is_random(word):
        return match[0]
    is_mixed = len(word) >= 32 and not word.islower()
    if (
        compiled(_AFTER_NAME).search(before)
        or compiled(_AFTER_KEY).search(before)
        or compiled(_AFTER_OPTION).search(before)
        or (is_mixed and compiled(_AFTER_SET).search(before))
    ):
        return mark + REDACTED + rest
    return match[0]


def _is_drawn(part: str, prefix: str) -> bool:
    if part.islower():  # a number of a commit, a digest
        return compiled(_OF_SECRETS).fullmatch(prefix) is not None and is_random(part)
    return is_random(part, with_digits=compiled(_OF_SECRETS).fullmatch(prefix) is None)


def _without_first(match: re.Match[str]) -> str:
    quote = match["value"][0]
    return f"{match['before']}{quote}{REDACTED}{quote}{match['behind']}"


def _without_tails(text: str) -> str:
    """The text without the ends of private keys whose beginning is not there."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "-----END" not in line or not compiled(_KEY_END).search(line):
            continue
        for at in range(number - 1, max(-1, number - MAX_QUOTED), -1):
            match = compiled(_KEY_LINE_OF_64).search(lines[at])
            if match is None or (len(match[0]) < 40 and at < number - 1):
                break
            lines[at] = lines[at][: match.start()] + REDACTED + lines[at][match.end() :]
    return "\n".join(lines)


def _secret_document(text: str) -> str:
    text = compiled(_FLOW_DATA).sub(lambda m: m[1] + compiled(_FLOW_VALUE).sub(_without_flow_value, m[2]) + m[3], text)
    return _walked(text, lambda _, around: around in {"data", "stringData"})


def _without_flow_value(match: re.Match[str]) -> str:
    quote = match[2] or ""
    return f"{match[1]}{quote}{REDACTED}{quote}"


def _is_list(name: str) -> bool:
    """Whether what stands below has names of its own, and is secret."""
    return name.lower().replace("-", "_").endswith(("api_keys", "passwords", "access_keys", "auth_tokens"))


def _walked(text: str, is_secret: Callable[[str, str], bool]) -> str:
    """What belongs to the keys of which `is_secret(name, name of the mapping around it)` is true, as `(redacted)`."""
    lines = text.split("\n")
    above: list[tuple[int, str]] = []
    called: dict[int, str] = {}
    held: dict[int, int] = {}  # lines with a value whose name may follow
    at = 0
    while at < len(lines):
        match = compiled(_KEY_LINE).match(lines[at])
        if match is None:
            at += 1
            continue
        indent, name, rest = len(match["indent"]), match["name"], (match["rest"] or "").strip()
        rest = "" if rest.startswith("#") else rest
        above = [entry for entry in above if entry[0] < indent]
        around = above[-1][1] if above else ""
        above.append((indent, name))
        ended = indent if "- " in match["indent"] else indent + 1  # mappings that stand so deep, or deeper, are over
        called = {depth: value for depth, value in called.items() if depth < ended}
        held = {depth: number for depth, number in held.items() if depth < ended}
        if name == "name":
            called[indent] = rest.strip("\"'")
            if indent in held and is_secret(called[indent], around):
                _redact_rest(lines, held.pop(indent))
        elif name == "value":  # of an entry of `env`
            held[indent] = at
            name = called.get(indent, name)
        first, at = at, at + 1
        is_own = is_secret(name, around)
        if not is_own and around and name.lower() in _OF_VALUE and compiled(_IS_NAME).match(around):
            _redact_rest(lines, first)
        if is_own and not (match["sign"] == "=" and "(" in rest.lstrip("\"'").removeprefix(REDACTED)):
            if rest and around and is_secret("", around) and not compiled(_BLOCK).match(rest):
                _redact_rest(lines, first)
            at = _redact_behind(lines, at, match, rest)
    return "\n".join(lines)


def _redact_rest(lines: list[str], number: int) -> None:
    """What stands behind the name, if it can be a secret."""
    match = compiled(_KEY_LINE).match(lines[number])
    if match is not None and match["rest"] and compiled(_NO_VALUE + r"\S").match(match["rest"].strip()):
        lines[number] = lines[number][: match.start("rest")] + REDACTED


def _redact_behind(lines: list[str], at: int, match: re.Match[str], rest: str) -> int:
    """Redacts what goes on in line `at`, behind the key of `match`; the number of the next line that does not."""
    if opened := compiled(_OPEN).match(rest):
        return _quoted(lines, at, opened[1])
    if match["ask"] and at < len(lines) and (value := re.match(r"[ \t]*: ", lines[at])):
        lines[at] = value[0] + REDACTED
    is_one_word = match["sign"] == "=" and bool(rest)
    is_block = compiled(_BLOCK).match(rest) is not None
    for number in _below(lines, at, len(match["indent"]), is_block=is_block, is_empty=not rest):
        if is_one_word and not re.fullmatch(r"(?=.*(?:\d|[a-z][A-Z]))[^\s(=]{6,}", lines[number].strip()):
            break
        mark = re.match(r"[ \t]*(?:- )?", lines[number])
        lines[number] = (mark[0] if mark else "") + REDACTED
        at = number + 1
    return at


def _quoted(lines: list[str], at: int, quote: str) -> int:
    """Redacts the lines in front of line `at` and behind it that belong to a quote; the number of the next one."""
    for end in range(at, min(len(lines), at + MAX_QUOTED)):
        before, found, behind = lines[end].partition(quote)
        if not found:
            continue
        if not re.fullmatch(r"[\s,;)}\]]*(?:#.*)?", behind):
            break
        for number in range(at, end):
            lines[number] = re.sub(r"\S.*", REDACTED, lines[number])
        indent = before[: len(before) - len(before.lstrip())]
        lines[end] = f"{indent}{REDACTED if before.strip() else ''}{quote}{behind}"
        return end + 1
    return at


def _below(lines: list[str], at: int, indent: int, *, is_block: bool, is_empty: bool) -> Iterator[int]:
    """The lines that belong to the scalar, or to the list of scalars, of a key in front of line `at`."""
    while at < len(lines):
        line = lines[at]
        if line.strip():
            depth = len(line) - len(line.lstrip())
            is_item = is_empty and line.lstrip().startswith("- ") and depth >= indent
            if depth <= indent and not is_item:
                return
            if not is_block and (compiled(_MAPPING).match(line) or len(line.split()) > MAX_WORDS + is_item):
                return
            if line.strip() != REDACTED:
                yield at
        elif not is_block:
            return
        at += 1
