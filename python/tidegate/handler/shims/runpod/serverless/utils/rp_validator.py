"""Validates an input against rules: `{"name": {"type": str, "required": True}}`.

The error messages and their order are Runpod's, and so is its leniency: a value of the default's type is not
checked any further.
"""

import json
from typing import Any


def validate(raw_input: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return `{"validated_input": …}`, or `{"errors": […]}`. Rules in JSON are read into `schema`."""
    errors = [
        f"Unexpected input. {key} is not a valid input option." for key in raw_input if key not in schema
    ]
    for key, rules in schema.items():
        if not isinstance(rules, dict):
            try:
                schema[key] = json.loads(rules)
            except json.JSONDecodeError:
                errors.append(f"Schema error, {key} is not a dictionary.")
    found = dict(raw_input)
    for key, rules in schema.items():
        _fill(key, rules, found, errors)
    for key, rules in schema.items():
        _check(key, rules, found, errors)
    return {"errors": errors} if errors else {"validated_input": found}


def _fill(key: str, rules: dict[str, Any], found: dict[str, Any], errors: list[str]) -> None:
    """Add the default of an absent input."""
    if "type" not in rules:
        errors.append(f"Schema error, missing type for {key}.")
    absent = key not in found
    if "required" not in rules or (rules["required"] and absent):
        errors.append(f"{key} is a required input.")
    elif absent and "default" in rules:
        found[key] = rules["default"]
    elif absent:
        errors.append(f"Schema error, missing default value for {key}.")


def _check(key: str, rules: dict[str, Any], found: dict[str, Any], errors: list[str]) -> None:
    if key in found:
        try:
            wanted = rules["type"]
        except TypeError:
            return  # an error for invalid rules has already been added
        if wanted is float and type(found[key]) is int:
            found[key] = float(found[key])
        if "default" in rules and isinstance(found[key], type(rules["default"])):
            return
        if not isinstance(found[key], wanted):
            errors.append(f"{key} should be {wanted} type, not {type(found[key])}.")
    if "constraints" in rules and not rules["constraints"](found.get(key)):
        errors.append(f"{key} does not meet the constraints.")
