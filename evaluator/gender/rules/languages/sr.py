"""Serbian, in either script: the rules of Croatian, whose word lists hold both standards' forms (*htio* and *hteo*)."""

from dataclasses import replace

from evaluator.gender.rules.languages import hr

RULES = replace(hr.RULES, code="sr", name="Serbian")
