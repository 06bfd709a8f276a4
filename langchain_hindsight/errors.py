"""The errors that this package raises: what was wrong, what was expected and what to do."""


class HindsightError(Exception):
    """The base of every error raised here: a server, a network, a caller or a configuration."""


class ConfigurationError(HindsightError):
    """A setting can never work as it stands; the message names it and what to set instead."""


class BankResolutionError(HindsightError):
    """No bank follows from who is asking, so there is none: never a default one."""


class LifeBankDisabledError(HindsightError):
    """A Life Bank was asked for, and none is configured or it is switched off."""


def reason(error: BaseException) -> str:
    """What a database or a disk said, without the values of a statement."""
    return str(getattr(error, "orig", None) or error)
