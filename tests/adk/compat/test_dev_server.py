"""Canary of lango/adk/compat/dev_server.py."""

from pathlib import Path

from tests.support.canary import Canary

CANARY = Canary.of_adk("dev_server.py", "ADK's web UI on lango's agents")


def test_the_server_takes_the_services() -> None:
    CANARY.takes(
        CANARY.part("cli.dev_server", "DevServer"),
        "agent_loader",
        "session_service",
        "memory_service",
        "artifact_service",
        "credential_service",
        "eval_sets_manager",
        "eval_set_results_manager",
        "agents_dir",
    )
    CANARY.part("cli.dev_server", "DevServer.get_fast_api_app")


def test_a_loader_has_two_methods() -> None:
    loader = CANARY.part("cli.utils.base_agent_loader", "BaseAgentLoader")
    abstract = loader.__abstractmethods__ == {"load_agent", "list_agents"}
    CANARY.check(abstract, "BaseAgentLoader", "exactly the abstract methods of lango's loader")


def test_the_pages_are_in_the_package() -> None:
    page = Path(CANARY.part("cli").__file__).parent / "browser" / "index.html"
    CANARY.check(page.is_file(), "package", "its pages in cli/browser")
