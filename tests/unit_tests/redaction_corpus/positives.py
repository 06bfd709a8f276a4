"""Texts that hold a credential, each with what must not survive and what must."""

# Punctuation of other languages is the point here.
# ruff: noqa: RUF001

from __future__ import annotations

import base64
import json
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Make = Callable[[Random], str]

_WORD = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_URL64 = _WORD + "_-"


@dataclass(frozen=True, slots=True)
class Positive:
    """A text, the credentials in it, and the text around them that must stay."""

    name: str
    kind: str
    text: str
    secrets: tuple[str, ...]
    before: str
    after: str
    held_out: bool


def _of(alphabet: str, size: int) -> Make:
    return lambda random: "".join(random.choices(alphabet, k=size))


def _pre(prefix: str, alphabet: str, size: int) -> Make:
    return lambda random: prefix + _of(alphabet, size)(random)


def _join(*makes: Make | str) -> Make:
    return lambda random: "".join(m if isinstance(m, str) else m(random) for m in makes)


def _b64(size: int) -> Make:
    return lambda random: base64.b64encode(random.randbytes(size)).decode()


def _uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _jwt(random: Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = {"alg": random.choice(["HS256", "RS256", "ES256"]), "typ": "JWT"}
    claims = {"sub": str(random.randrange(10**9)), "iat": 1_700_000_000 + random.randrange(10**7)}
    return f"{part(head)}.{part(claims)}.{_of(_URL64, 43)(random)}"


# Kinds whose value is known by its shape, wherever it stands. The prefixes are those that the
# services document; the bodies come from a seed.
TOKENS: dict[str, Make] = {
    "openai-project": _join("sk-" + "proj-", _of(_URL64, 74), "T3Blbk" + "FJ", _of(_URL64, 74)),
    "openai-legacy": _join("sk" + "-", _of(_WORD, 20), "T3Blbk" + "FJ", _of(_WORD, 20)),
    "openai-service": _pre("sk-" + "svcacct-", _URL64, 60),
    "anthropic": _join("sk-" + "ant-api03-", _of(_URL64, 93), "AA"),
    "openrouter": _pre("sk-" + "or-v1-", _HEX, 64),
    "deepseek": _pre("sk" + "-", _HEX, 32),
    "google-api": _pre("AI" + "za", _URL64, 35),
    "google-oauth-secret": _pre("GOC" + "SPX-", _URL64, 28),
    "google-access": _pre("ya" + "29.a0", _URL64, 120),
    "aws-access": _pre("AK" + "IA", string.ascii_uppercase + "234567", 16),
    "aws-temporary": _pre("AS" + "IA", string.ascii_uppercase + "234567", 16),
    "azure-client-secret": _join(_of(_WORD, 3), "8" + "Q~", _of(_WORD + "_-.~", 34)),
    "github-classic": _pre("gh" + "p_", _WORD, 36),
    "github-oauth": _pre("gh" + "o_", _WORD, 36),
    "github-user": _pre("gh" + "u_", _WORD, 36),
    "github-server": _pre("gh" + "s_", _WORD, 36),
    "github-refresh": _pre("gh" + "r_", _WORD, 76),
    "github-fine": _join("github" + "_pat_", _of(_WORD, 22), "_", _of(_WORD, 59)),
    "gitlab": _pre("gl" + "pat-", _URL64, 20),
    "gitlab-runner": _pre("gl" + "rt-", _URL64, 20),
    "gitlab-trigger": _pre("gl" + "ptt-", _HEX, 40),
    "slack-bot": _join(
        "xo" + "xb-", _of(string.digits, 12), "-", _of(string.digits, 13), "-", _of(_WORD, 24)
    ),
    "slack-user": _join(
        "xo" + "xp-", _of(string.digits, 12), "-", _of(string.digits, 12), "-", _of(_HEX, 32)
    ),
    "slack-app": _join(
        "xa" + "pp-1-A",
        _of(string.digits + "ABCDEF", 10),
        "-",
        _of(string.digits, 13),
        "-",
        _of(_HEX, 64),
    ),
    "stripe-live": _pre("sk" + "_live_", _WORD, 24),
    "stripe-test": _pre("sk" + "_test_", _WORD, 24),
    "stripe-restricted": _pre("rk" + "_live_", _WORD, 99),
    "stripe-webhook": _pre("wh" + "sec_", _WORD, 32),
    "twilio": _pre("S" + "K", _HEX, 32),
    "sendgrid": _join("S" + "G.", _of(_URL64, 22), ".", _of(_URL64, 43)),
    "mailgun": _pre("ke" + "y-", _HEX, 32),
    "mailgun-new": _join(_of(_HEX, 32), "-", _of(_HEX, 8), "-", _of(_HEX, 8)),
    "mailchimp": _join(_of(_HEX, 32), "-us", "12"),
    "huggingface": _pre("h" + "f_", string.ascii_letters, 34),
    "pypi": _pre("py" + "pi-AgEIcHlwaS5vcmc", _URL64, 130),
    "npm": _pre("np" + "m_", _WORD, 36),
    "digitalocean": _pre("do" + "p_v1_", _HEX, 64),
    "databricks": _pre("da" + "pi", _HEX, 32),
    "discord-bot": _join("M", _of(_WORD, 23), ".", _of(_URL64, 6), ".", _of(_WORD, 38)),
    "telegram": _join(_of("123456789", 10), ":AA", _of(_URL64, 33)),
    "linear": _pre("lin" + "_api_", _WORD, 40),
    "notion": _pre("nt" + "n_", _WORD, 46),
    "notion-legacy": _pre("secret" + "_", _WORD, 43),
    "figma": _pre("fi" + "gd_", _URL64, 40),
    "shopify": _pre("shp" + "at_", _HEX, 32),
    "shopify-shared": _pre("shp" + "ss_", _HEX, 32),
    "square": _join("sq0" + "csp-", _of(_URL64, 43)),
    "square-access": _pre("EA" + "AA", _URL64, 60),
    "postman": _join("PM" + "AK-", _of(_HEX, 24), "-", _of(_HEX, 34)),
    "newrelic": _pre("NR" + "AK-", string.ascii_uppercase + string.digits, 27),
    "newrelic-license": _join(_of(_HEX, 36), "NR" + "AL"),
    "sentry-user": _pre("sn" + "tryu_", _HEX, 64),
    "groq": _pre("gs" + "k_", _WORD, 52),
    "xai": _pre("xa" + "i-", _WORD, 80),
    "perplexity": _pre("pp" + "lx-", _WORD, 48),
    "replicate": _pre("r" + "8_", _WORD, 37),
    "supabase": _pre("sb" + "p_", _HEX, 40),
    "supabase-secret": _pre("sb" + "_secret_", _URL64, 31),
    "vercel": _pre("vc" + "p_", _WORD, 56),
    "hindsight": _pre("hs" + "k_", _WORD, 32),
    "hindsight-short": _pre("h" + "s_", _HEX, 40),
    "langsmith": _join("ls" + "v2_pt_", _of(_HEX, 32), "_", _of(_HEX, 10)),
    "langfuse": _join("sk" + "-lf-", _uuid),
    "tavily": _pre("tv" + "ly-dev-", _WORD, 32),
    "pinecone": _join("pc" + "sk_", _of(_WORD, 6), "_", _of(_WORD, 63)),
    "brevo": _join("xke" + "ysib-", _of(_HEX, 64), "-", _of(_WORD, 16)),
    "docker": _pre("dck" + "r_pat_", _URL64, 27),
    "rubygems": _pre("ruby" + "gems_", _HEX, 48),
    "vault": _pre("hv" + "s.", _URL64, 90),
    "terraform": _join(_of(_WORD, 14), ".atlas" + "v1.", _of(_URL64, 67)),
    "grafana": _join("gl" + "sa_", _of(_WORD, 32), "_", _of(_HEX, 8)),
    "airtable": _join("pa" + "t", _of(_WORD, 14), ".", _of(_HEX, 64)),
    "atlassian": _pre("AT" + "ATT3xFfGF0", _URL64, 180),
    "doppler": _pre("dp" + ".pt.", _WORD, 43),
    "planetscale": _pre("psc" + "ale_tkn_", _URL64, 43),
    "netlify": _pre("nf" + "p_", _WORD, 36),
    "hubspot": _join("pa" + "t-na1-", _uuid),
    "age": _pre("AGE-SECRET" + "-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "alibaba": _pre("LT" + "AI5t", _WORD, 20),
    "tailscale": _join("ts" + "key-auth-", _of(_WORD, 12), "CNTRL-", _of(_WORD, 32)),
    "jwt": _jwt,
}

# How people bring a token into a conversation. `{}` is where it stands.
_AROUND_TOKENS = (
    "{}",
    "here you go: {}, try it",
    "凭证为{}，请不要外传",
    "令牌{}已过期",
    "curl https://api.example.com/v1/things -H 'X-Key: {}'",
    'client = Client("{}")',
    "| prod | {} | rotated |",
    "```\n{}\n```\nplease rotate",
    "log: auth ok ({}) in 12 ms",
    '{{"tool": "sh", "args": "{{\\"cmd\\": \\"login {}\\\\n\\"}}"}}',
    '{{"text": "\\u51ed\\u8bc1\\u4e3a{}"}}',
    "first line\\n{}\\nsecond line",
    "[{}](https://example.com)",
    "see https://example.com/cb#{}",
    "\x1b[32m{}\x1b[0m ok",
    "is it “{}”?",
)


def _password(random: Random) -> str:
    body = "".join(random.choices(_WORD, k=random.randint(6, 16)))
    return body[:3] + random.choice("!@#$%^*+=?") + body[3:] + random.choice(string.digits)


def _simple_password(random: Random) -> str:
    return random.choice(["swordfish", "trustno", "dragon", "wintersun", "kestrel"]) + str(
        random.randrange(10, 99)
    )


def _hex32(random: Random) -> str:
    return _of(_HEX, 32)(random)


def _plain_password(random: Random) -> str:
    return random.choice(["swordfish", "wintersun", "kestrelwing", "mellonfriend", "opensesame"])


_key40 = _of(_WORD + "_-", 40)
_aws_secret = _of(_WORD + "/+", 40)
_azure_storage = _b64(64)

# kind, how the value is made, and the text around it.
FIELDS: tuple[tuple[str, Make, str], ...] = (
    ("env", _password, "DB_PASSWORD={}\nDEBUG=1"),
    ("env", _plain_password, "DB_PASSWORD={}\nDEBUG=1"),
    ("env", _hex32, "DD_API_KEY={}\n"),
    ("env", _hex32, 'export DATADOG_APP_KEY="{}"\n'),
    ("env", _key40, "CLOUDFLARE_API_TOKEN={}\n"),
    ("env", _aws_secret, "AWS_SECRET_ACCESS_KEY={}\nAWS_REGION=eu-west-1"),
    ("env", _b64(32), "APP_KEY=base64:{}\n"),
    ("env", _of(_HEX, 128), "SECRET_KEY_BASE={}\n"),
    ("env", _password, "POSTGRES_PASSWORD_PROD='{}'\n"),
    ("env", _of(_WORD, 24), "VERCEL_TOKEN={}\n"),
    ("env", _key40, '$env:OPENAI_API_KEY = "{}"'),
    ("env", _password, "set PGPASSWORD={}\npsql -h db"),
    ("env", _plain_password, "ENV ADMIN_PASSWORD {}\nRUN true"),
    ("env", _hex32, "MISTRAL_API_KEY = {} # staging"),
    ("ini", _aws_secret, "[default]\naws_secret_access_key = {}\nregion = eu-west-1"),
    ("ini", _simple_password, "[client]\nuser = root\npassword = {}\n"),
    ("ini", _plain_password, "[client]\nuser = root\npassword={}\n"),
    ("ini", _b64(24), "//registry.example.com/:_auth={}\n"),
    ("ini", _uuid, "//registry.example.com/:_authToken={}\n"),
    ("yaml", _simple_password, "db:\n  user: app\n  password: {}\n  port: 5432"),
    ("yaml", _plain_password, "db:\n  user: app\n  password: {}\n  port: 5432"),
    ("yaml", _password, "db:\n  password: '{}'\n"),
    ("yaml", _hex32, "datadog:\n  api_key: {}\n  site: eu"),
    ("yaml", _b64(18), "kind: Secret\ndata:\n  password: {}\n"),
    ("yaml", _simple_password, "env:\n  - name: DB_PASSWORD\n    value: {}\n"),
    ("yaml", _simple_password, 'env:\n  - name: DB_PASSWORD\n    value: "{}"\n'),
    ("yaml", _simple_password, "password: |\n  {}\nuser: x"),
    ("yaml", _key40, "client_secret: >-\n  {}\nuser: x"),
    ("json", _simple_password, '{{"user": "app", "password": "{}", "port": 5432}}'),
    ("json", _plain_password, '{{"user":"app","password":"{}","port":5432}}'),
    ("json", _key40, '{{"apiKey": "{}"}}'),
    ("json", _key40, '{{"client_secret":"{}","client_id":"app"}}'),
    ("json", _hex32, '{{"auth": {{"accessToken": "{}"}}}}'),
    ("json", _key40, '{{"refresh_token": "{}", "expires_in": 3600}}'),
    ("json", _password, '{{"Authorization": "{}"}}'),
    (
        "tool-call",
        _simple_password,
        '{{"arguments": "{{\\"password\\": \\"{}\\", \\"host\\": \\"db\\"}}"}}',
    ),
    ("tool-call", _key40, '{{"arguments": "{{\\"api_key\\":\\"{}\\"}}"}}'),
    (
        "tool-call",
        _simple_password,
        '{{"a": "{{\\"b\\": \\"{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}\\"}}"}}',
    ),
    ("tool-call", _simple_password, '{{"command": "export DB_PASSWORD={}\\nmake run"}}'),
    (
        "tool-call",
        _hex32,
        '{{"command": "curl -H \\"Authorization: Bearer {}\\" https://x.example.com"}}',
    ),
    ("code", _simple_password, 'password = "{}"\nconnect(password)'),
    ("code", _plain_password, "connect(user='app', password='{}', port=5432)"),
    ("code", _simple_password, 'password: str = "{}"\n'),
    ("code", _key40, 'api_key: str | None = "{}"\n'),
    ("code", _key40, 'const apiKey = "{}";\n'),
    ("code", _key40, 'let token: string = "{}";\n'),
    ("code", _simple_password, 'String dbPassword = "{}";\n'),
    ("code", _simple_password, 'password := "{}"\n'),
    ("code", _key40, 'os.environ["API_KEY"] = "{}"\n'),
    ("code", _simple_password, "define('DB_PASSWORD', '{}');\n"),
    ("code", _simple_password, 'if password == "{}":\n    pass'),
    ("code", _simple_password, 'builder.setPassword("{}").build()'),
    ("code", _simple_password, ":password => '{}',\n"),
    (
        "code",
        lambda r: " ".join(r.sample(["correct", "horse", "battery", "staple", "violet"], 4)),
        'passphrase = "{}"\n',
    ),
    ("code", _simple_password, "CREATE USER app WITH PASSWORD '{}';"),
    ("code", _simple_password, "ALTER USER app IDENTIFIED BY '{}';"),
    ("xml", _simple_password, "<server><username>a</username><password>{}</password></server>"),
    ("xml", _key40, '<add key="ApiKey" value="{}" />'),
    (
        "connection-string",
        _simple_password,
        "Server=db;Database=a;User Id=sa;Password={};Encrypt=true",
    ),
    (
        "connection-string",
        _azure_storage,
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    ),
    (
        "connection-string",
        _b64(32),
        "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}",
    ),
    ("connection-string", _simple_password, "host=db user=app password={} dbname=a"),
    ("cli", _simple_password, "psqlx --user app --password {} --host db"),
    ("cli", _plain_password, "psqlx --user app --password={} --host db"),
    ("cli", _plain_password, "deploy --db-password {}\n"),
    ("cli", _key40, "tool --api-key {} run"),
    ("cli", _hex32, "tool --token={} run"),
    ("cli", _simple_password, 'tool --password "{}" run'),
    ("cli", _simple_password, "mysql -u root -p{} shop"),
    ("cli", _simple_password, "sshpass -p {} ssh host"),
    ("cli", _simple_password, "docker login -u bob -p {} registry.example.com"),
    ("cli", _simple_password, "curl -u admin:{} https://example.com"),
    ("cli", _simple_password, "redis-cli -a {} ping"),
    ("url", _simple_password, "postgresql://app:{}@db.example.com:5432/shop"),
    ("url", _plain_password, "redis://:{}@cache:6379/0"),
    (
        "url",
        lambda r: _of(_WORD, 5)(r) + "@" + _of(_WORD, 4)(r),
        "mongodb+srv://app:{}@cluster0.example.net/?retryWrites=true",
    ),
    (
        "url",
        lambda r: _of(_WORD, 6)(r) + "%2F" + _of(_WORD, 6)(r),
        "amqps://app:{}@mq.example.com/vhost",
    ),
    ("url", _hex32, "https://{}@o1.ingest.sentry.io/42"),
    ("url", _hex32, "https://x-access-token:{}@github.com/a/b.git"),
    ("url", _plain_password, "访问https://admin:{}@example.com/即可"),
    ("query", _hex32, "https://example.com/cb?access_token={}&state=1"),
    ("query", _b64(32), "https://a.blob.core.windows.net/c?sv=2024-01-01&sig={}"),
    ("query", _of(_HEX, 64), "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={}"),
    ("query", _key40, "GET /v1/items?api_key={}&page=2 HTTP/1.1"),
    ("query", _simple_password, "jdbc:mysql://db/shop?user=app&password={}&useSSL=true"),
    ("header", _key40, "Authorization: Bearer {}\nAccept: */*"),
    ("header", _hex32, 'headers={{"Authorization": "Token {}"}}'),
    (
        "header",
        lambda r: base64.b64encode(f"bob:{_simple_password(r)}".encode()).decode(),
        "Authorization: Basic {}\r\nHost: x",
    ),
    ("header", _key40, "curl -H 'Authorization: Bearer {}' https://example.com"),
    ("header", _key40, "X-Api-Key: {}\nAccept: */*"),
    ("header", _key40, "I sent bearer {} and got 401"),
    ("header", _hex32, "Ocp-Apim-Subscription-Key: {}\n"),
    ("header", _uuid, "X-Postmark-Server-Token: {}\n"),
    ("cookie", _hex32, "Cookie: sessionid={}\nAccept: */*"),
    ("cookie", _key40, "Set-Cookie: sid={}; Path=/; HttpOnly"),
    ("cookie", _key40, 'curl --cookie "session={}" https://example.com'),
    ("cookie", _hex32, '{{"cookie": "PHPSESSID={}; theme=dark"}}'),
    ("prose", _password, "my password is {} by the way"),
    ("prose", _simple_password, "The password: {}, please keep it"),
    ("prose", _simple_password, "密码是{}，别告诉别人"),
    ("prose", _simple_password, "密码：{}"),
    ("prose", _simple_password, "Das Passwort: {}"),
    ("prose", _key40, "the api key is {}"),
    ("prose", _hex32, "use token {} for staging"),
    ("prose", _hex32, "API key: `{}`"),
    ("prose", _simple_password, "**Password:** `{}`"),
    ("prose", _simple_password, "pw: {}"),
    ("code-block", _simple_password, "The password is:\n```\n{}\n```\nDone."),
    ("code-block", _key40, "API key:\n\n```text\n{}\n```\nDone."),
    ("code-block", _hex32, "Token:\n{}\n\nDone."),
    (
        "webhook",
        lambda r: f"T{_of(string.digits, 8)(r)}/B{_of(string.digits, 8)(r)}/{_of(_WORD, 24)(r)}",
        "https://hooks." + "slack.com/services/{}",
    ),
    ("webhook", _of(_URL64, 68), "https://discord.com/api/" + "webhooks/123456789012345678/{}"),
    (
        "webhook",
        _join(_of("123456789", 10), ":AA", _of(_URL64, 33)),
        "https://api.telegram.org/bot{}/sendMessage",
    ),
    ("aws-pair", _aws_secret, "AK" + "IA" + "QWERTYUIOPASDFGH,{}\n"),
)

# Met after the held-out third was set aside: written without a look at the rules, and the reason
# for some of them. None of these is held out.
LATER: tuple[tuple[str, Make, str], ...] = (
    ("prose", _simple_password, "the wifi password's {}"),
    ("prose", _simple_password, "creds: admin:{}"),
    ("prose", _simple_password, "login: bob / password: {}!"),
    ("prose", _simple_password, "The password for the database is `{}`."),
    ("prose", _simple_password, "username: bob, password {}"),
    ("prose", _simple_password, "ssh root@192.0.2.4 password: {}"),
    ("prose", _plain_password, "sudo password: {}"),
    ("prose", _simple_password, "パスワードは{}です"),
    ("prose", _simple_password, "password→{}"),
    ("prose", _hex32, "vercel token {}"),
    ("prose", _uuid, "heroku api key: {}"),
    ("prose", _hex32, "accountSid AC0 authToken {}"),
    ("table", _simple_password, "| password | {} |"),
    ("yaml", _join("example_pw_", _of(string.digits, 1), "x"), "MYSQL_ROOT_PASSWORD: {}"),
    ("yaml", _simple_password, "auth: {{user: bob, pass: {}}}"),
    ("yaml", _join(_of("abcdef", 6), "-", _of(string.digits, 6), "-xyz"), "API_KEY: {}"),
    ("yaml", _plain_password, "- POSTGRES_PASSWORD={}"),
    ("short-token", _of("abc123", 3), "sk" + "_test_abc1{}"),
    ("short-token", _of(string.ascii_lowercase, 8), "xo" + "xb-1234-5678-{}"),
    ("header", _of(string.ascii_lowercase, 12), "Authorization: Bearer {}"),
    ("header", _pre("secret-token-", string.digits, 3), "authorization: bearer {}"),
    ("header", _hex32, 'Authorization: Digest username="bob", response="{}"'),
    ("header", _of(_HEX, 64), "Authorization: AWS4-HMAC-SHA256 SignedHeaders=host, Signature={}"),
    ("cookie", _of("abc123", 7), "Cookie: session=a1{}"),
    ("query", _of(string.ascii_lowercase, 9), "https://example.com/?token={}"),
    ("query", _hex32, "grant_type=refresh_token&refresh_token={}"),
    ("cli", _key40, "apikey '{}'"),
    ("cli", _pre("a1", "abc123", 7), "run --api-key={}"),
    ("cli", _simple_password, "mysql -uroot -p{}"),
    ("env", _of(string.ascii_lowercase, 14), "SECRET={}"),
    ("env", lambda r: f"my-{r.choice(['very', 'own'])}-secret-key", "HINDSIGHT_API_KEY={}"),
    ("env", _simple_password, "ConnectionStrings__Default=Server=.;User Id=sa;Pwd={};"),
    ("env", _simple_password, "REDIS_URL=redis://default:{}@redis:6379"),
    ("code", _simple_password, "auth=('bob', '{}')"),
    ("code", _simple_password, "HTTPBasicAuth('bob', '{}')"),
    ("code", _simple_password, "requests.get(url, auth=('user','{}'))"),
    ("code", _simple_password, 'password = """{}"""'),
    ("code", _plain_password, "db_pass = '{}'"),
    ("url", _simple_password, "ftp://bob:{}@example.com"),
)


def _pem(random: Random, label: str) -> str:
    data = base64.b64encode(random.randbytes(300)).decode()
    lines = [data[i : i + 64] for i in range(0, len(data), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


def _keys(random: Random) -> list[tuple[str, str, tuple[str, ...], str, str]]:
    rows = []
    for label in (
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ):
        pem = _pem(random, label)
        lines = tuple(pem.split("\n")[1:-1])
        one = pem.replace("\n", "\\n")
        cut = pem.rsplit("\n", 1)[0]
        rows += [
            (f"{label} whole", f"key below\n{pem}\nkey above", lines, "key below\n", "\nkey above"),
            (
                f"{label} one line",
                json.dumps({"private_key": pem, "client": "a"}),
                lines,
                '{"private_key": "',
                '", "client": "a"}',
            ),
            (
                f"{label} in arguments",
                json.dumps({"args": json.dumps({"k": pem})}),
                lines,
                '{"args": "{\\"k\\": \\"',
                '\\"}"}',
            ),
            (f"{label} cut off", f"see {cut}", lines, "see ", ""),
            (
                f"{label} cut off, then prose",
                f"see {one.rsplit(chr(92), 1)[0]}\nand then we went on",
                lines,
                "see ",
                "\nand then we went on",
            ),
            (f"{label} without its head", pem.split("\n", 1)[1] + "\nmore", lines, "", "\nmore"),
            (f"{label} quoted", "> " + pem.replace("\n", "\n> ") + "\nmore", lines, "> ", "\nmore"),
            (f"{label} spaces for lines", pem.replace("\n", " ") + " more", lines, "", " more"),
        ]
    return rows


def _wrapped(random: Random) -> list[tuple[str, str, tuple[str, ...], str, str]]:
    rows = []
    for name in (
        "openai-project",
        "anthropic",
        "jwt",
        "github-fine",
        "github-classic",
        "google-api",
        "pypi",
    ):
        token = TOKENS[name](random)
        cut = len(token) // 2
        a, b = token[:cut], token[cut:]
        rows += [
            (f"{name} over two lines", f"key:\n{a}\n{b}\nbye", (a, b), "key:\n", "\nbye"),
            (f"{name} indented", f"    {a}\n    {b}\nbye", (a, b), "    ", "\nbye"),
            (f"{name} quoted in mail", f"> {a}\n> {b}\nbye", (a, b), "> ", "\nbye"),
            (f"{name} joined in code", f'k = ("{a}"\n     "{b}")\n', (a, b), 'k = ("', '")\n'),
            (
                f"{name} in two blocks",
                f"```\n{a}\n```\n```\n{b}\n```\nbye",
                (a, b),
                "```\n",
                "\n```\nbye",
            ),
            (
                f"{name} wrapped in arguments",
                json.dumps({"c": f"{a}\n{b}\nbye"}),
                (a, b),
                '{"c": "',
                '\\nbye"}',
            ),
        ]
    return rows


def _build() -> tuple[Positive, ...]:
    rows: list[tuple[str, str, str, tuple[str, ...], str, str]] = []
    for index, (kind, make) in enumerate(TOKENS.items()):
        random = Random(f"token {kind}")
        for step in range(4):
            template = _AROUND_TOKENS[(index * 5 + step * 3) % len(_AROUND_TOKENS)]
            rows.append(_row(f"{kind} in {template!r}", kind, template, make(random)))
    for index, (kind, make, template) in enumerate(FIELDS):
        random = Random(f"field {index}")
        rows.extend(_row(f"{kind} in {template!r}", kind, template, make(random)) for _ in range(2))
    random = Random("blocks")
    rows += [(name, "private-key", *rest) for name, *rest in _keys(random)]
    rows += [(name, "wrapped", *rest) for name, *rest in _wrapped(random)]
    # Every third is held out; shuffled, so that the thirds share no pattern of the lists above.
    order = list(range(len(rows)))
    Random("held out").shuffle(order)
    held_out = set(order[::3])
    for index, (kind, make, template) in enumerate(LATER):
        rows.append(_row(f"{kind} in {template!r}", kind, template, make(Random(f"later {index}"))))
    return tuple(
        Positive(name, kind, text, secrets, before, after, number in held_out)
        for number, (name, kind, text, secrets, before, after) in enumerate(rows)
    )


def _row(
    name: str, kind: str, template: str, secret: str
) -> tuple[str, str, str, tuple[str, ...], str, str]:
    before, _, after = template.partition("{}")
    before, after = before.format(), after.format()
    # A cookie and a whole header go as one, so only what is outside them has to stay.
    if kind == "cookie":
        before, after = before[: before.lower().find("cookie")], ""
    if kind == "short-token" or "Digest" in before or "creds" in before:
        before = after = ""
    if kind == "aws-pair" or before.endswith("base64:"):
        before = before.partition("=")[0] if "=" in before else ""
    return name, kind, template.format(secret), (secret,), before, after


POSITIVES = _build()
