"""Rules of the bucket ``download/cache``: the hub, its cache, its access rights."""

from __future__ import annotations

from functools import partial

from pytest_tfdebug.triage.rule import DOWNLOAD, Rule

_rule = partial(Rule, DOWNLOAD)

_NOT_REACHED = (
    r"We couldn't connect to '.+' to load th(?:e|is) file"
    r"|(?i:cannot find the (?:requested files|appropriate snapshot|appropriate cached snapshot))"
    r"|There was a specific connection error when trying to load"
)
_MISSING = ("OSError", "LocalEntryNotFoundError", "HfHubHTTPError")
_CACHED_FILES = "transformers.utils.hub.cached_files"
_LIST_CACHE = "hf cache ls"

DOWNLOAD_RULES = (
    _rule(
        "hub-local-files-only",
        _MISSING,
        _NOT_REACHED,
        (
            "{wanted} is not in the cache, and this call forbids the hub with {local_only}.",
            "{wanted} is not in the cache, and offline mode keeps the call from the hub.",
            "a file is not in the cache, and offline mode (a flag, or local_files_only=True) keeps it from the hub.",
        ),
        (
            'pass revision="{cached}": the cache holds that one',
            "{download}    # once, with a network and HF_HUB_OFFLINE=0",
            "download the repository once with the offline flags unset: hf download REPO",
        ),
        (_LIST_CACHE,),
        f"{_CACHED_FILES}; huggingface_hub.file_download._raise_on_head_call_error",
        because=r"OfflineModeIsEnabled|outgoing traffic has been disabled",
        facts="download",
    ),
    _rule(
        "hub-offline",
        ("OfflineModeIsEnabled",),
        r"(?i)offline mode is enabled|outgoing traffic",
        (
            "the hub was asked for {wanted}, and offline mode forbids it.",
            "the hub was asked, and offline mode forbids it.",
        ),
        (
            "{download}    # once, with a network and HF_HUB_OFFLINE=0",
            "HF_HUB_OFFLINE=0 {rerun}    # the cache does not answer: {code}",
            "HF_HUB_OFFLINE=0 {rerun}    # the cache does not answer such a call",
        ),
        (_LIST_CACHE,),
        "huggingface_hub.utils._http.hf_request_event_hook",
        facts="download",
    ),
    _rule(
        "hub-rate-limit",
        _MISSING,
        r"",
        ("the hub refused {wanted}: too many requests (429).", "the hub refused: too many requests (429)."),
        (
            "{download}    # once, then HF_HUB_OFFLINE=1 {rerun}",
            "log in (hf auth login) and download once, then HF_HUB_OFFLINE=1 {rerun}",
        ),
        ("hf auth whoami    # anonymous requests have the lowest limit",),
        "huggingface_hub.utils._http.hf_raise_for_status",
        because=r"^HfHubHTTPError: .*\b429 (?:Too Many Requests|Client Error)",
        facts="download",
    ),
    _rule(
        "hub-server-error",
        _MISSING,
        r"",
        ("the hub answered {wanted} with a server error.", "the hub answered with a server error."),
        ("run it again later; once cached, HF_HUB_OFFLINE=1 {rerun} needs no hub",),
        ("open https://status.huggingface.co",),
        "huggingface_hub.utils._http.hf_raise_for_status",
        because=r"^HfHubHTTPError: .*\b5\d\d [A-Z]|^HTTPError: 5\d\d .+ for url: \S+/resolve/",
        facts="download",
    ),
    _rule(
        "hub-unreachable",
        _MISSING,
        _NOT_REACHED,
        (
            "the hub could not be reached, and {wanted} is not in the cache.",
            "the hub could not be reached, and the file is not in the cache.",
        ),
        (
            'pass revision="{cached}": the cache holds that one',
            "{download}    # once, with a network; then HF_HUB_OFFLINE=1 {rerun}",
            "download the repository once with a network (hf download REPO), then HF_HUB_OFFLINE=1 {rerun}",
        ),
        ("{rerun} --tf-offline    # fails at once, without waiting for the network",),
        _CACHED_FILES,
        facts="download",
    ),
    _rule(
        "hub-gated",
        ("OSError", "GatedRepoError"),
        r"You are trying to access a gated repo|is a gated repository|Access to model .+ is restricted",
        (
            "{repo} is gated, and this account has no access to it.",
            "the repository is gated, and this account has no access to it.",
        ),
        (
            "request access at https://huggingface.co/{repo}, then: hf auth login",
            "request access on the model's page, then: hf auth login",
        ),
        ("hf auth whoami",),
        _CACHED_FILES,
        facts="download",
    ),
    _rule(
        "hub-unknown-repository",
        ("OSError", "RepositoryNotFoundError"),
        r"is not a valid model identifier|is not a local folder or a valid repository name|Repository Not Found",
        (
            "the hub has no repository {repo}, or hides it from this account.",
            "the hub has no such repository, or hides it from this account.",
        ),
        ("correct the id in: {code}", "correct the repository id"),
        ("hf auth whoami    # private repositories need: hf auth login",),
        _CACHED_FILES,
        facts="download",
    ),
    _rule(
        "hub-unknown-revision",
        ("OSError", "RevisionNotFoundError"),
        r"is not a valid git identifier|Revision Not Found",
        ("{repo} has no revision {revision}.", "the repository has no such revision."),
        (
            'pass revision="{cached}": the cache holds that one',
            "correct the revision in: {code}",
            "correct the revision: a branch, a tag or a full commit id",
        ),
        ("open https://huggingface.co/{repo}/commits/main", "open the commits of the model's page"),
        _CACHED_FILES,
        facts="download",
    ),
    _rule(
        "hub-missing-file",
        ("OSError", "EntryNotFoundError"),
        r"(?<!\S)(?P<repo>\S+) does not appear to have (?:a file|files) named (?P<file>.+?)\.(?: Checkout|\s|$)|Entry Not Found for url",
        ("{repo} has no file {file}.", "the repository has no such file."),
        (
            "load from a repository or directory that has {file}, or write it there with save_pretrained",
            "correct the file name",
        ),
        ("ls {directory}", "list the files: https://huggingface.co/{repo}/tree/main"),
        _CACHED_FILES,
        facts="missing file",
    ),
    _rule(
        "missing-local-path",
        ("OSError", "HFValidationError"),
        r"Repo id must (?:be in the form|use alphanumeric)[\s\S]*: '(?P<path>[^']+)'",
        (
            "{address} is the address of a page, not a repository id.",
            "the {local} path {path} does not exist, so it was taken for a repository id.",
            "{path} is neither a directory nor a valid repository id.",
        ),
        (
            "{rewritten}",
            "use {near}",
            "create {path}, or correct the path in: {code}",
            "correct the path or id {path}",
        ),
        ("open {address}", "ls {parent}", 'print(repr("{path}"), os.getcwd())'),
        "huggingface_hub.utils._validators.validate_repo_id",
        facts="path",
    ),
    _rule(
        "cache-permission",
        ("OSError",),
        r"PermissionError at (?P<path>\S+) when downloading",
        ("the cache cannot be written: {path}.",),
        ("HF_HOME=DIR {rerun}    # a directory that you may write",),
        ("ls -ld {path}",),
        _CACHED_FILES,
    ),
)
