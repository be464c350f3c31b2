"""Canary of lango/adk/compat/cli.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("cli.py", "loading agents by their folder")


def test_the_loader_takes_a_folder_and_a_name() -> None:
    loader = CANARY.part("cli.utils.agent_loader", "AgentLoader")
    CANARY.takes(loader, "agents_dir")
    CANARY.takes(
        CANARY.part("cli.utils.agent_loader", "AgentLoader.load_agent"), "self", "agent_name"
    )


def test_a_function_reads_the_dotenv_file_of_an_agent() -> None:
    load = CANARY.part("cli.utils.envs", "load_dotenv_for_agent")
    CANARY.takes(load, "agent_name", "agent_parent_folder")
