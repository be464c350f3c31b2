"""Canary of lango/adk/compat/auth.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("auth.py", "credentials from lango's store instead of the session's state")
HANDLER = "auth.auth_handler"
OPENAPI = "tools.openapi_tool.openapi_spec_parser.tool_auth_handler"


def test_adk_s_tools_request_and_read_credentials_by_these_methods() -> None:
    from lango.adk.compat import auth

    CANARY.takes(vars(auth)["_generate"], "self")
    for name in ("_parse_and_store", "_has", "_get"):
        CANARY.takes(vars(auth)[name], "self", "state")
    CANARY.takes(vars(auth)["_stored"], "self", "auth_scheme", "auth_credential")
    CANARY.takes(vars(auth)["_store"], "self", "key", "auth_credential")


def test_adk_calls_them() -> None:
    context = CANARY.part("agents.context", "Context")
    CANARY.contains(context, "AuthHandler(auth_config).get_auth_response(self.state)")
    CANARY.contains(context, "AuthHandler(auth_config).generate_auth_request()")
    resume = CANARY.part("auth._auth_resume", "store_auth_response")
    CANARY.contains(resume, ".parse_and_store_auth_response(")
    handler = CANARY.part(OPENAPI, "ToolAuthHandler")
    CANARY.contains(
        handler, "credential_store.get_credential(", "credential_store.store_credential("
    )
