"""Which release or commit changed a result: the command ``tfdebug bisect``."""
