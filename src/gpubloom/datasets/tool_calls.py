"""Tool calls and tool definitions as chat templates expect them: objects, not JSON inside a string.

OpenAI's format writes the arguments of a call as a JSON string, and tables hold whole columns as JSON. Most
templates pass both through `tojson`; a string would be encoded a second time, and the model would learn to
answer with escaped quotes. A few templates append the arguments as text, so `Arguments` works as both.
"""

import json
from collections.abc import Sequence
from typing import Any

from gpubloom.errors import InputError


class Arguments(dict[str, Any]):
    """Arguments of a call: an object for `tojson` and loops, its JSON where a template writes it as text."""

    def __init__(self, values: dict[str, Any], text: str | None = None) -> None:
        super().__init__(values)
        self._text = text

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False) if self._text is None else self._text

    def __add__(self, text: str) -> str:
        return f"{self}{text}"

    def __radd__(self, text: str) -> str:
        return f"{text}{self}"


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in a string; an empty string is an empty object. ValueError says what is wrong."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError("invalid_tool_call", "nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise InputError("invalid_tool_call", f"{problem.msg} at character {problem.pos + 1}") from None
    if not isinstance(value, dict):
        raise InputError("invalid_tool_call", "not an object")
    return value


def arguments_fault(calls: object) -> str | None:
    """What is wrong with the calls of a message, as the end of "has …"; None when they can be trained."""
    if not isinstance(calls, list):
        return "tool_calls that are not a list"
    for number, call in enumerate(calls, 1):
        if not isinstance(call, dict):
            return f"tool call {number} that is not an object"
        arguments = function_of(call).get("arguments")
        if not isinstance(arguments, str | dict | None):
            return f"arguments in tool call {number} that are not a JSON object"
        if isinstance(arguments, str):
            try:
                parse_object(arguments)
            except ValueError as problem:
                return f"arguments in tool call {number} that are not a JSON object ({problem})"
    return None


def parsed_message(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the arguments of its calls as objects. What is no JSON object stays as it is: a
    conversation that is continued may hold whatever a model once wrote."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_parsed_call(call) for call in calls]}


def parsed_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tool definitions as objects, their parameters too. ValueError says what is wrong."""
    return [_parsed_tool(tool, number) for number, tool in enumerate(tools, 1)]


def _parsed_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    function = function_of(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = Arguments(parse_object(arguments), arguments)
        except ValueError:
            return call
    elif isinstance(arguments, dict):
        arguments = Arguments(arguments)
    else:
        return call
    parsed = {**function, "arguments": arguments}
    return parsed if function is call else {**call, "function": parsed}


def _parsed_tool(tool: Any, number: int) -> dict[str, Any]:
    if isinstance(tool, str):
        try:
            tool = parse_object(tool)
        except ValueError as problem:
            raise InputError(
                "invalid_tool_call", f"tool {number} that is not a JSON object ({problem})"
            ) from None
    if not isinstance(tool, dict):
        raise InputError("invalid_tool_call", f"tool {number} that is not an object")
    function = function_of(tool)
    parameters = function.get("parameters")
    if not isinstance(parameters, str):
        return tool
    try:
        parsed = {**function, "parameters": parse_object(parameters)}
    except ValueError as problem:
        raise InputError(
            "invalid_tool_call", f"parameters in tool {number} that are not a JSON object ({problem})"
        ) from None
    return parsed if function is tool else {**tool, "function": parsed}


def function_of(call: dict[str, Any]) -> dict[str, Any]:
    """Where name and arguments are: in `function`, as OpenAI writes it, or in the call itself."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def _refuse_constant(name: str) -> Any:
    raise InputError("invalid_tool_call", f"{name} is not JSON")
