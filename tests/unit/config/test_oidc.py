"""`server.oidc`: what can be trusted, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from lango.config.load import load
from lango.errors import ConfigError

ISSUER = "https://id.example"


def loaded(tmp_path: Path, **oidc: Any) -> Any:
    file = tmp_path / "lango.yaml"
    file.write_text(yaml.safe_dump({"server": {"oidc": oidc}}))
    return load(file).settings.server.oidc


def test_an_issuer(tmp_path: Path) -> None:
    oidc = loaded(tmp_path, issuer=ISSUER, audience="lango")
    assert (oidc.user_claim, oidc.leeway, oidc.tenant, oidc.audiences) == ("sub", 60, "", ["lango"])
    several = loaded(tmp_path, issuer=ISSUER, audience=["a", "b"], jwks_url="http://127.0.0.1/k")
    assert several.audiences == ["a", "b"]


def test_without_one(tmp_path: Path) -> None:
    (tmp_path / "lango.yaml").write_text("{}")
    assert load(tmp_path / "lango.yaml").settings.server.oidc is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"audience": "x"}, "server.oidc.issuer: this key is needed"),
        ({"issuer": ISSUER}, "server.oidc.audience: this key is needed"),
        ({"issuer": "http://id.example", "audience": "x"}, "must begin with https://"),
        ({"issuer": ISSUER, "audience": "x", "jwks_url": "http://id.example"}, "https://"),
        ({"issuer": ISSUER, "audience": ""}, "`audience` is required"),
        ({"issuer": ISSUER, "audience": []}, "`audience` is required"),
        ({"issuer": ISSUER, "audience": ["x", ""]}, "`audience` is required"),
        ({"issuer": ISSUER, "audience": "x", "tenant": "a", "tenant_claim": "b"}, "not both"),
        ({"issuer": ISSUER, "audience": "x", "leeway": 6000}, "server.oidc.leeway"),
        ({"issuer": ISSUER, "audience": "x", "audiance": "x"}, "Did you mean audience?"),
    ],
)
def test_what_is_refused(tmp_path: Path, said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, **said)
    assert why in str(refused.value)
