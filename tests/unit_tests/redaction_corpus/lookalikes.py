"""Texts that resemble a credential and hold none: masking any of them would cost a memory."""

# Punctuation of other languages is the point here.
# ruff: noqa: RUF001

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class LookAlike:
    """A text that must come back as it was."""

    text: str
    held_out: bool


_PROSE = """\
The password is required.
Your password must be at least 12 characters long.
Password: required, at least 8 characters
I forgot my password again, can you help?
The password is stored in the keychain, never in the repo.
Passwords are hashed with bcrypt before they are saved.
The password is case-sensitive.
The password is base64-encoded, then sent.
The password is sha256-hashed on the client.
We rotate the password every 90 days.
Set the password to something long.
Change the password to one that you can remember.
Password reset: see https://example.com/reset for the steps
Password managers: 1Password, Bitwarden, KeePass
My password hint is the name of my dog.
Password strength: weak
Password policy: strong
The secret is to start early.
The secret: practice.
The secret ingredient is time.
Victoria's Secret is a brand.
Their secret sauce = good docs.
An open secret is no secret.
Token limit = 4096
token limit: 8192 tokens
The max token count is 128000.
max_tokens = 4096
max_tokens: 800
life_max_tokens=400
total_tokens: 15233
prompt_tokens=1042, completion_tokens=311
"usage": {"prompt_tokens": 1042, "completion_tokens": 311, "total_tokens": 1353}
tokens_per_second: 88.4
Token: the unit of text that a model reads
A token is about four characters of English.
token budget 4096 of o200k_base
The tokenizer is o200k_base.
tokenizer = cl100k_base
tokenizer: bert-base-uncased
pad_token = "<|endoftext|>"
eos_token: </s>
eos_token_id = 50256
special_token: [CLS]
The first token is BOS.
next_page_token: CAUQAA2fj39dk3lA
"nextPageToken": "EAAaBlBUOkNBVQ2fj3"
continuation_token = "c3RhcnQ9MTAwJmVuZD0yMDA"
pageToken=CDIQAA1b2c3d4e5f
sync_token: v2_88412
Non-fungible tokens: ERC721 and ERC1155
The API key is missing.
API key: required
API key: see the dashboard
An API key is needed for this endpoint.
Set the API key in the environment.
The API key is read from OPENAI_API_KEY.
The api key is invalid or expired.
The key is under the mat.
Key takeaways: ship early, ship often
primary key: id
foreign key = user_id
"key": "value"
key = "theme"
cache_key = "user:123:profile:v2"
cache_key: recall-4f2a9c1b-project
sort_key=created_at
partition_key = "tenant_42"
key: ctrl+shift+p
Press any key to continue.
The public key is published at https://example.com/keys.
access_key_id: see the console
Authorization is required for this route.
Authorization: required
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN}
Authorization: Bearer $TOKEN
Authorization: Bearer {token}
Authorization: Bearer YOUR_API_KEY
Authorization: Bearer YOUR_ACCESS_TOKEN_HERE
Authorization: Basic <base64>
Authorization: Bearer ...
Authorization: Bearer ***
Use a bearer token for authorization.
bearer authentication is simpler than OAuth2
The bearer of this letter is my friend.
Basic authentication is off.
basic understanding of Python is required
Cookie: a small piece of data that a site stores
Cookies: enabled
The cookie is set by the proxy.
cookie consent = true
Set-Cookie is a response header.
A cookie jar, and a recipe for cookies: butter, sugar, flour
Session tokens expire after 30 minutes.
session id is a UUID
Credentials: none
credentials = none
credentials: "include"
fetch(url, { credentials: "same-origin" })
Credentials are kept in the vault.
pass: 12, fail: 3, skip: 1
pass = True
passed: 341 in 12.5s
The tests pass: all 12 of them
pass rate: 98.5%
bypass: false
compass: north
passport: renewed in 2024
pathway: A12
patience: 100
sk-learn is short for scikit-learn
scikit-learn-1.5.2 was released
task-management-system-for-teams-2024
risk-assessment-framework-version-3
desk-booking-2024-q3-plan
disk-usage-report-2024-11-30
the ask-me-anything-session-2025
hs_user_profile_table is the name of the table
hs_err_pid12345.log was written by the JVM
hf_transformers_cache_directory is set
hf_hub_download(repo_id="org/model")
npm_config_registry is set by npm
npm_lifecycle_event=build
re_compile_pattern_for_names
r8_optimizer_rules_pro
pypi-publish is a GitHub action
key-value-store-2024
key-exchange-algorithms
sl.eep is misspelled
SG. is short for Singapore here
EAAT is an acronym
shpat is not a word
ghp_ is the prefix of GitHub's tokens
AKIA is how access key ids begin
sk-proj- is how project keys begin
sk-ant-... is what Anthropic's look like
Keys begin with sk-ant-api03- and are long.
eyJ is how a JWT begins
A JWT has three parts: header.payload.signature
-----BEGIN PRIVATE KEY----- is how a PEM file begins
Look for -----BEGIN RSA PRIVATE KEY----- and -----END RSA PRIVATE KEY----- in it
-----BEGIN PUBLIC KEY-----
-----BEGIN CERTIFICATE REQUEST-----
ssh-ed25519 is the type of the public key
密码不能为空
密码：必填
密码是必填项
请输入密码
令牌已过期，请重新登录
密钥管理是一个难题
凭证为空
パスワードを入力してください
비밀번호를 입력하세요
Das Passwort ist falsch.
Das Passwort: bitte eingeben
La contraseña es obligatoria
le mot de passe est obligatoire
пароль не подходит
The PIN is checked by the card.
two-factor codes: off
rate limit = 5000 requests an hour
order number 4111-2222 shipped
call +49 30 901820 for support
ISBN 978-3-16-148410-0
meeting id: 894 1234 5678
version: 2.31.0-rc.1+build.4821
python3.11.7-slim-bookworm
ubuntu-22.04-lts-amd64-server-20241101
postgres:16.4-alpine3.20
2026-03-14T15:09:26.535897+00:00
192.168.1.17:8080 and [fe80::1%eth0]:443
00:1A:2B:3C:4D:5E
51.5074° N, 0.1278° W
s3://bucket/path/to/part-00000-of-00128.parquet
arn:aws:iam::123456789012:role/deploy-role
arn:aws:s3:::my-bucket/prefix/*
/usr/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so
C:\\Users\\token\\AppData\\Local\\Programs\\key.exe
node_modules/@types/node/index.d.ts
https://example.com/blog/password-hygiene-2024
https://example.com/docs/api-keys#rotate
https://example.com:8080/path/@user
https://www.youtube.com/watch?v=dQw4w9WgXcQ
https://example.com/search?q=token+limit&page=2
https://example.com/?key=theme&sort=asc
https://example.com/list?page_token=CAUQAA2fj39dk3lA
https://example.com/cb?code=200&state=ok
https://docs.google.com/document/d/1A2b3C4d5E6f7G8h9I0jKlMnOpQrStUvWxYz12345678/edit
https://github.com/owner/repo/commit/9fceb02d0ae598e95dc970b74767f19372d61af8
https://github.com/owner/repo/blob/main/tests/test_tokens.py#L10-L20
git@github.com:owner/repo.git
ssh://git@github.com/owner/repo.git
https://user@example.com/repo.git
https://<user>:<password>@example.com/
https://${USER}:${PASS}@example.com/
postgresql://{user}:{password}@localhost/db
docker://registry.example.com:5000/img@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
http://localhost:8888/v1/default/banks/coding/memories
npm i left-pad@1.3.0 --save-exact
mkdir -p src/components/Password2
docker run -p 8080:80 nginx:1.27
ssh -p 2222 host01
tar -xzf archive-2024.tar.gz -C /tmp/p4
cp -p file1.txt file2.txt
curl -u admin https://example.com
curl -fsSL https://example.com/install.sh | sh
mysql -u root -p shop
mysql --user=root --password shop_db
psql -h localhost -p 5432 -U app shop
login --password-stdin
deploy --token-file /run/secrets/token1
deploy --token $TOKEN
deploy --api-key "${API_KEY}"
deploy --password <password>
deploy --password "$PASSWORD"
train --max-tokens 4096 --tokenizer cl100k_base
pytest -k token --durations=5
git checkout 4f2a9c1
git log --oneline a94a8fe5..9fceb02d
Merge commit 'a94a8fe5ccb19ba61c4c0873d391e987982fbbd3' into main
commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD -> main)
index 3b18e512d..d670460b4 100644
etag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
md5sum: 5d41402abc4b2a76b9719d911017c592
integrity sha512-rmZcRYxjvNGmzl0LvIq0TqcHnHkVXYO0HEkVz5W0CSnTqXTGbEDH2lGQKNEEIBrT==
x-request-id: 7f3c2a1e-8b4d-4c6f-9e2a-1d5b7c9f0e3a
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
thread_id: t-8842-ab12
tool_call_id: call_abc123def456ghi789jkl012
run-3f2a9c1b-0f7e-4d2a-9b1c-0a1b2c3d4e5f
toolu_01A09q90qw90lq917835lq9
chatcmpl-9xK2mQ7vT4bN8sL1pW3eR5yU6iO0
msg_01XFDUDYJgAACzvnptvVoYEL
asst_abc123XYZ789def456
container id 4c01db0b339c was removed
pod/api-7d9c6b8f5d-x2x4z is Running
user_2NNEqL2nrIRdJ194ndJqAHwEfxC
cus_9s6XKzkNRiz8i3
pi_3MtwBwLkdIwHu7ix28a3tqPa
price_1MoBy5LkdIwHu7ixZhnattbh
prod_NWjs8kKbJWmuuc
pk_test_TYooMQauvdEDq54NiTphI7jx
1600x1200@2x and 3840x2160
HS256 and RS256 are algorithms for JWTs
AES-256-GCM with PBKDF2-HMAC-SHA512
TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
SGVsbG8sIHdvcmxkISBIZWxsbywgd29ybGQhIEhlbGxvLCB3b3JsZCE=
The token is OAuth2-style, opaque to us.
The secret is named db-credentials in Kubernetes.
secretName: db-credentials-v2
secret: app-tls
secretKeyRef:
token_type: bearer
"token_type": "Bearer"
token_endpoint: https://example.com/oauth/token
grant_type=refresh_token
auth: oauth2
auth = "none"
authType: apiKey
author: A. N. Writer
authority: https://login.example.com/tenant1
keyboard: qwertz-de105
monkey: 3
turkey = 12kg
pwd: /home/dev/project1
pw = page width
Sig: 250 mg b.i.d.
signature: (a: int, b: str) -> bool
patch: 2024.11.3
dispatch = none
The key signature is B-flat major.
Let's pass: it is 5 o'clock.
Passing tests: 1024/1024
"""

_CODE = """\
password: str
password: str = ""
password: str | None = None
password: Optional[str] = None
password: SecretStr
api_key: SecretStr | None = None
api_key: str = Field(default=None, description="The key")
password: string;
token: string | undefined;
apiKey?: string;
private String password;
def login(user: str, password: str) -> Token:
def connect(self, *, token=None, secret=None):
password = os.environ["DB_PASSWORD"]
password = os.environ.get("DB_PASSWORD", "")
api_key = os.environ["API_KEY"]
api_key=os.getenv("OPENAI_API_KEY")
API_KEY = os.environ['API_KEY']
const apiKey = process.env.API_KEY;
const token = process.env.GITHUB_TOKEN2;
token = await response.json()
token = response.json()["access_token"]
token = get_token(user_id=42)
token = jwt.encode(payload, key, algorithm="HS256")
password = getpass.getpass()
password = getpass("Password: ")
password = input("Enter your password: ")
password = read_password()
password = self._password
password = config.database.password
self.password = password
self.token = token
client = Client(api_key=api_key)
client = Client(api_key=settings.api_key)
client = Client(api_key=OPENAI_API_KEY)
connect(user=user, password=password)
connect(user=user, password=user_password)
connect(password=args.password, host=args.host)
hashed_password = hash_password(password)
password_hash = bcrypt.hashpw(password.encode(), salt)
if password == confirm_password:
if not token:
if token is None:
if len(password) < 8:
if (password.length < 12) {
for token in tokens:
tokens = text.split()
tokens = [token for token in tokens if token]
token_count = len(tokens)
max_token = 512
num_tokens: int = 2048
secret = secrets.token_hex(32)
secret = load_secret("db")
key = f"user:{user_id}"
key = hashlib.sha256(data).hexdigest()
api_key = "YOUR_API_KEY"
api_key = "your-api-key"
api_key = "your-api-key-here-12345678"
api_key = "<your-key>"
api_key = "${TOKEN}"
api_key = "***"
api_key = "xxxxxxxxxxxxxxxxxxxxxxxx"
api_key = "sk-..."
api_key = "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
api_key = "sk-your-key-goes-here-1234"
api_key = "..."
api_key = ""
api_key = None
API_KEY=
API_KEY=${API_KEY}
API_KEY=$API_KEY
API_KEY=<your-key>
API_KEY=YOUR_API_KEY
API_KEY="{{ secrets.API_KEY }}"
api_key: ${{ secrets.OPENAI_API_KEY }}
password: ${DB_PASSWORD:-}
password: "{{ vault_db_password }}"
password: !vault |
password: *default_password
PASSWORD=********
PASSWORD=<password>
PASSWORD=changeme_placeholder
password=%s
password=%(password)s
password={password}
password={0}
"password": null
"password": ""
"password": "string"
"password": "********"
"password": "<password>"
"password": "${PASSWORD}"
"password": {"type": "string", "minLength": 8}
"password": "The password of the user"
"password": "Enter your password"
"password": "Password must be at least 8 characters"
"token": "The access token of the caller"
"token": null
"token": "next"
"token": "hello"
"tokens": 4096
"secret": true
"secret": "my-secret-name"
"api_key": "string"
"apiKey": "<API_KEY>"
"access_token": "..."
"cookie": "none"
"authorization": "required"
<input type="password" name="password" placeholder="Password">
<label for="password">Password:</label>
<password></password>
<password>${password}</password>
<param name="token" type="string">The token</param>
.password { color: #ff00aa; }
#token-list-2024 > li { color: #1a2b3c }
assert redact("x") == "x"
assert token == expected_token
expect(token).toBe(null)
SELECT password FROM users WHERE id = 42
ALTER TABLE users ADD COLUMN password VARCHAR(255)
INSERT INTO users (name, password) VALUES (?, ?)
WHERE password = :password
WHERE password = $1
WHERE token = ?
password VARCHAR(72) NOT NULL
logger.info("token=%s", token)
print(f"token: {token}")
raise ValueError("password: too short")
throw new Error("Invalid token: " + token);
# password: see the vault
# TODO: rotate the token
* @param password the password of the user
@param {string} token - The token
:param api_key: The API key, read from the environment.
Args: password: The password, at least 8 characters.
--password TEXT  The password. [required]
--token TOKEN    The token (default: $TOKEN)
  -p, --password string   Password (or use --password-stdin)
export TOKEN=$(vault read -field=token secret/app1)
export PASSWORD="$(cat /run/secrets/db_password)"
export API_KEY=`pass show api1`
TOKEN=$(curl -s https://example.com/token | jq -r .token)
headers = {"Authorization": f"Bearer {token}"}
headers["Authorization"] = "Bearer " + token
headers: { Authorization: `Bearer ${token}` }
curl -H "Authorization: Bearer $TOKEN" https://example.com
curl -u "$USER:$PASS" https://example.com
curl -u <user>:<password> https://example.com
cookie = SimpleCookie()
cookies = {"theme": theme}
document.cookie
request.cookies.get("session")
response.set_cookie("session", value)
from redis.credentials import CredentialProvider
import secrets
from langchain_core.utils import get_from_env, secret_from_env
token: Annotated[str, Depends(oauth2_scheme)]
token: Token = Depends()
public class TokenService2 implements ITokenService
type Token = { kind: "word"; text: string };
enum TokenType { Word1, Number2 }
interface Credentials { user: string; password: string }
struct Token<'a> { text: &'a str }
let password = prompt("Password?");
val password = readln()
func Login(user string, password string) error {
password := os.Getenv("DB_PASSWORD")
password, err := terminal.ReadPassword(0)
secret = data.aws_secretsmanager_secret_version.db.secret_string
password = var.db_password
password = random_password.db.result
password: "{{ lookup('env', 'DB_PASSWORD') }}"
secretKeyRef: { name: db, key: password }
valueFrom:\\n  secretKeyRef:\\n    name: db\\n    key: password
recall.max_tokens = 800
api_key_env: HINDSIGHT_API_KEY
SECRET_KEY = env("SECRET_KEY")
SECRET_KEY = config("DJANGO_SECRET_KEY", default="")
KEY_LENGTH=32
PASSWORD_MIN_LENGTH=12
TOKEN_EXPIRY=3600
TOKEN_URL=https://example.com/oauth/token
"""
# Met in the sources of well-known packages after the held-out third was set aside.
_LATER = """\
@field_validator("on_fail", "on_pass", "on_error")
outcome: Literal["pass", "fail", "error", "skip"]
frozenset(("api-key", "authorization"))
'PutScrapText', 'pwd', 'Quit', 'RatioFromNumber',
attribute_names = ["host", "database", "username", "password", "port"]
kind: Literal[AuthSpecKind.api_key] = AuthSpecKind.api_key
target_passphrase = passphrase
load_pem_private_key(key, password=passphrase)
if not {"x-api-key", "Authorization"} & headers.keys():
("sessionId", "threadId", "conversationId")
meta[CLIENT_CAPABILITIES_META_KEY] = capabilities
ensure_api_route(get_default_base_url(api_key), "contextualizedembeddings")
password = passphrase_val
private_key: PKCS7PrivateKeyTypes,
- pass -> on_pass
Encode it and pass to the wrapped object's `.write()` method.
r'case|continue|switch|not|and|or|set|echo|exit|pwd|true|false|'
"*": {"class", "accesskey", "dropzone"},
Obviously pass "HintPep484TypeVarFree" as a new parameter
Password1 and Password2 must match.
The token for the next page is in the header.
password for the account is required
auth=(user, password)
username, password = proxy_auth
Token: "#f8f8f2",
private_key: Ed25519PrivateKey | Ed448PrivateKey
private_key = Ed25519PrivateKey.from_private_bytes(d)
join(pwd, './data/philox-testset-1.csv')
auth = ("user", password)
"""

_DOCSTRING = """\
class StaticCredentials(Credentials):
    \\"\\"\\"Credentials that hold one access token.

    They are never refreshed: `credentials = StaticCredentials(token="x1")` is all there is.
    \\"\\"\\"
""".replace("\\", "")

_FRAMES = ("{}", "see {} for that", '"id": "{}"', "version {}, then", "| {} | ok |", "为{}，")


def _generated() -> list[str]:
    random = Random("look-alikes")
    texts = []
    for number in range(10):
        data = random.randbytes(64)
        ids = (
            hashlib.sha1(data).hexdigest(),
            hashlib.sha1(data).hexdigest()[:7],
            hashlib.sha256(data).hexdigest(),
            hashlib.md5(data).hexdigest(),
            str(uuid.UUID(bytes=data[:16], version=4)),
            uuid.UUID(bytes=data[:16], version=4).hex,
            f"sha256:{hashlib.sha256(data).hexdigest()}",
            base64.b64encode(data).decode(),
            f"{random.randrange(10**15)}",
            f"run-{uuid.UUID(bytes=data[16:32], version=4)}",
            f"v{random.randrange(9)}.{random.randrange(99)}.{random.randrange(99)}-{hashlib.md5(data).hexdigest()[:8]}",
        )
        texts += [
            _FRAMES[(number + step) % len(_FRAMES)].replace("{}", text)
            for step, text in enumerate(ids)
        ]
    for size in (600, 3_000, 20_000):
        image = base64.b64encode(random.randbytes(size)).decode()
        texts += [
            f"![chart](data:image/png;base64,{image})",
            f'{{"type": "image", "data": "{image}"}}',
            "\n".join(image[i : i + 76] for i in range(0, len(image), 76)),
        ]
        # Pictures hold runs of zero bytes, which base64 writes as a run of one letter.
        flat = random.randbytes(40) + bytes(300) + random.randbytes(size)
        texts.append(f"data:image/bmp;base64,{base64.b64encode(flat).decode()}")
    for label in (
        "CERTIFICATE",
        "PUBLIC KEY",
        "RSA PUBLIC KEY",
        "PGP PUBLIC KEY BLOCK",
        "CERTIFICATE REQUEST",
    ):
        body = base64.encodebytes(random.randbytes(300)).decode()
        texts.append(f"-----BEGIN {label}-----\n{body}-----END {label}-----")
    texts.append(f"ssh-ed25519 {base64.b64encode(random.randbytes(51)).decode()} dev@host")
    return texts


def _build() -> tuple[LookAlike, ...]:
    texts = [*_PROSE.splitlines(), *_CODE.splitlines(), *_generated()]
    order = list(range(len(texts)))
    Random("held out").shuffle(order)
    held_out = set(order[::3])
    rows = [LookAlike(text, number in held_out) for number, text in enumerate(texts)]
    later = [*_LATER.splitlines(), _DOCSTRING]
    return (*rows, *(LookAlike(text, held_out=False) for text in later))


LOOKALIKES = _build()
