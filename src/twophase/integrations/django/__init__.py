"""Django: the check-back route in one line, and branches that take effect once.

    urlpatterns = [path("twophase/check", check_view("default"))]

    @branch("default")
    def transfer_in(connection: BaseDatabaseWrapper, request: HttpRequest) -> None:
        receive(request.body)

`message.transaction("default")` takes an alias as well: the block is then the outermost `atomic` of that alias.
"""

from twophase.integrations.functions import missing_extra

try:
    import django  # noqa: F401 -- looked for, so that the error names the extra
except ModuleNotFoundError as error:
    raise missing_extra("django", error) from None

from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.integrations.django.cleaning import clean_barrier
from twophase.integrations.django.unavailable import UnavailableMiddleware
from twophase.integrations.django.views import aonce, branch, branch_view, check_view, once

__all__ = [
    "BranchOngoing",
    "BranchRefused",
    "UnavailableMiddleware",
    "aonce",
    "branch",
    "branch_view",
    "check_view",
    "clean_barrier",
    "once",
]
