"""Click whatever can be clicked."""

STAYING = "main button:visible, header button:visible, main summary:visible, main input:visible, main fieldset label:visible, main select:visible, header select:visible"


def click_everything(page):
    """Use every control of a page that does not lead away from it; return how many there were."""
    used = 0
    for place in range(page.locator(STAYING).count()):
        control = page.locator(STAYING).nth(place)
        if not control.count() or not control.is_visible():
            continue
        used += 1
        if control.evaluate("e => e.tagName") == "SELECT":
            for option in control.locator("option").all():
                control.select_option(option.get_attribute("value") or "")
            control.select_option(index=0)
        elif control.get_attribute("type") == "search":
            control.fill("a")
            control.fill("")
        else:
            control.click(timeout=3000)
    return used


#: Controls without a name that a screen reader could say.
NAMELESS = """
() => [...document.querySelectorAll('a, button, select, input, canvas, [tabindex="0"], [role]')].filter((e) => {
  const label = e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.title || e.textContent.trim() || [...(e.labels || [])].map((l) => l.textContent.trim()).join('');
  const isInPicture = e.tagName === 'CANVAS' && e.closest('[role="img"][aria-label]');
  return !label && !isInPicture && e.getAttribute('role') !== 'group' && e.getAttribute('role') !== 'status';
}).map((e) => e.outerHTML.slice(0, 200))
"""
