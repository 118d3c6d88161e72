"""Meltano's state in ClickHouse: an add-on that Meltano finds by itself. See `manager.PipelineStateManager`.

Importing this loads nothing else, since every Meltano command asks for the settings.
"""
