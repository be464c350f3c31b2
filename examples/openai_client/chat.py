"""OpenAI's own client, talking to an agent: each line of input is a turn of one durable session."""

import os
import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

client = OpenAI(base_url=os.environ["LANGO_URL"] + "/openai/v1", api_key=os.environ["LANGO_KEY"])
agent = client.models.list().data[0].id
talk: list[ChatCompletionMessageParam] = []

for line in sys.stdin:
    talk.append({"role": "user", "content": line.strip()})
    answer = ""
    for chunk in client.chat.completions.create(model=agent, messages=talk, stream=True):
        words = chunk.choices[0].delta.content or ""
        answer += words
        print(words, end="", flush=True)
    print()
    talk.append({"role": "assistant", "content": answer})
