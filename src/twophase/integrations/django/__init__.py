"""Django: the check-back route in one line, and branches that take effect once.

    urlpatterns = [path("twophase/check", check_view("default"))]

    @branch_view
    def transfer_in(request: HttpRequest) -> HttpResponse:
        return once("default", request, lambda connection: receive(request.body))

`message.transaction("default")` takes an alias as well: the block is then the outermost `atomic` of that alias.
"""

from twophase.integrations.django.views import branch_view, check_view, once

__all__ = ["branch_view", "check_view", "once"]
